"""The variants of a model in a repository on the hub: its quantizations, each in one file or in several shards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from models.download import RemoteFile
from models.fit import Fit
from models.shards import shard_names, without_shard_number

_QUANTIZATION = re.compile(
    r"(?:^|(?<=[-._ ]))(?P<type>(?:UD-)?(?:I?Q[1-8](?:_(?:K|[01]|NL|XXS|XS|S|M|L|XL|XXL)\b(?!_\d))?"
    r"(?:_(?:XXS|XS|S|M|L|XL|XXL))?|Q4_0_[48]_[48]|TQ[12]_0|BF16|FP?16|FP?32|MXFP4(?:_MOE)?|NVFP4))(?=$|[-._ ])",
    re.IGNORECASE,
)
