"""Random changes by two instances of the app to two chats, against a plain model of what must be on disk."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from app.chat.conversation import MessageState
from app.chat.errors import StoreError
from app.chat.preferences.settings import ChatSettings
from app.chat.storage.store import ChatStore
from engine.messages import Role


@dataclass(frozen=True)
class Known:
    """A message as it must be."""

    chat: int
    parent: int | None
    role: Role
    text: str
    state: MessageState
    writer: int | None = None  # number of the instance that has it streaming
    deletion: int | None = None


@dataclass
class KnownChat:
    leaf: int | None = None
    start: int | None = None
    is_deleted: bool = False


@dataclass
class Model:
    """Everything in dictionaries; the tree is walked by comparing all with all."""

    chats: dict[int, KnownChat] = field(default_factory=dict)
    messages: dict[int, Known] = field(default_factory=dict)
    deletions: dict[int, tuple[int, int | None, int | None]] = field(default_factory=dict)

    def live(self, chat: int) -> dict[int, Known]:
        return {i: m for i, m in self.messages.items() if m.chat == chat and m.deletion is None}

    def below(self, chat: int, top: int) -> set[int]:
        found = {top}
        while more := {i for i, m in self.live(chat).items() if m.parent in found} - found:
            found |= more
        return found

    def end_from(self, chat: int, at: int | None) -> int | None:
        while children := [i for i, m in self.live(chat).items() if m.parent == at]:
            at = max(children)
        return at


WHICH = st.integers(0, 1000)
INSTANCE = st.integers(0, 1)


class StoreMachine(RuleBasedStateMachine):
    """Each rule acts through one of two stores on one file; both must show the same afterwards."""

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="octavo-store-")
        self.stores = [ChatStore(Path(self.folder.name) / "chats.db") for _ in range(2)]
        ids = [self.stores[0].create_chat(ChatSettings()).id for _ in range(2)]
        self.model = Model({chat_id: KnownChat() for chat_id in ids})

    def pick(self, chat: int, which: int) -> int | None:
        live = sorted(self.model.live(chat))
        return live[which % len(live)] if live else None

    def chat(self, which: int) -> int | None:
        chats = [chat_id for chat_id, chat in self.model.chats.items() if not chat.is_deleted]
        return chats[which % len(chats)] if chats else None

    @rule(
        by=INSTANCE,
        chat=WHICH,
        which=WHICH,
        is_root=st.sampled_from([False, False, False, True]),
        states=st.lists(st.sampled_from(MessageState), min_size=1, max_size=4),
    )
    def add(self, by: int, chat: int, which: int, is_root: bool, states: list[MessageState]) -> None:
        """Messages that follow each other, and the first of them any message."""
        chat_id = self.chat(chat)
        if chat_id is None:
            return
        parent = None if is_root else self.pick(chat_id, which)
        for state in states:
            role = Role.USER if which % 2 else Role.ASSISTANT
            message = self.stores[by].add_message(chat_id, parent, role, f"text {which}", state)
            assert message.id > max(self.model.messages, default=0)
            writer = by if state is MessageState.STREAMING else None
            self.model.messages[message.id] = Known(chat_id, parent, role, message.text, state, writer)
            self.model.chats[chat_id].leaf = parent = message.id

    @rule(
        by=INSTANCE,
        which=WHICH,
        text=st.none() | st.integers(0, 9).map("text {}".format),
        state=st.none() | st.sampled_from(MessageState),
    )
    def update(self, by: int, which: int, text: str | None, state: MessageState | None) -> None:
        """Also a deleted one, but not one that the other instance is writing."""
        if not self.model.messages:
            return
        message_id = sorted(self.model.messages)[which % len(self.model.messages)]
        message = self.model.messages[message_id]
        if message.writer not in (None, by):
            with pytest.raises(StoreError, match="another window"):
                self.stores[by].update_message(message_id, text=text, state=state)
            return
        self.stores[by].update_message(message_id, text=text, state=state)
        state = state or message.state
        writer = by if state is MessageState.STREAMING else None
        text = message.text if text is None else text
        self.model.messages[message_id] = replace(message, text=text, state=state, writer=writer)

    @rule(by=INSTANCE, chat=WHICH, which=WHICH)
    def set_leaf(self, by: int, chat: int, which: int) -> None:
        chat_id = self.chat(chat)
        message_id = None if chat_id is None else self.pick(chat_id, which)
        if chat_id is not None and message_id is not None:
            self.stores[by].set_leaf(chat_id, message_id)
            self.model.chats[chat_id].leaf = message_id

    @rule(by=INSTANCE, chat=WHICH, which=WHICH)
    def set_start(self, by: int, chat: int, which: int) -> None:
        chat_id = self.chat(chat)
        if chat_id is not None:
            message_id = self.pick(chat_id, which) if which % 4 else None
            self.stores[by].set_start(chat_id, message_id)
            self.model.chats[chat_id].start = message_id

    @rule(by=INSTANCE, chat=WHICH, which=WHICH)
    def delete(self, by: int, chat: int, which: int) -> None:
        chat_id = self.chat(chat)
        message_id = None if chat_id is None else self.pick(chat_id, which)
        if chat_id is not None and message_id is not None:
            self.delete_message(by, chat_id, message_id)

    def delete_message(self, by: int, chat_id: int, message_id: int) -> None:
        known = self.model.chats[chat_id]
        deletion = self.stores[by].delete_messages(chat_id, message_id)
        assert deletion not in self.model.deletions
        self.model.deletions[deletion] = (chat_id, known.leaf, known.start)
        gone = self.model.below(chat_id, message_id)
        for one in gone:
            self.model.messages[one] = replace(self.model.messages[one], deletion=deletion)
        if known.leaf in gone:
            known.leaf = self.model.end_from(chat_id, self.model.messages[message_id].parent)
        if known.start in gone:
            known.start = None

    @rule(by=INSTANCE, which=WHICH)
    def restore(self, by: int, which: int) -> None:
        if not self.model.deletions:
            return
        tokens = sorted(self.model.deletions)
        deletion = tokens[which % len(tokens)]
        chat_id, leaf, start = self.model.deletions.pop(deletion)
        self.stores[by].restore_messages(deletion)
        back = {i for i, m in self.model.messages.items() if m.deletion == deletion}
        top = min(back, default=0)
        for one in back:
            at: int | None = one
            while at is not None:
                self.model.messages[at] = replace(self.model.messages[at], deletion=None)
                at = self.model.messages[at].parent
        known, live = self.model.chats[chat_id], self.model.live(chat_id)
        if leaf in live:
            known.leaf = leaf
        elif known.leaf is None and back:
            known.leaf = self.model.end_from(chat_id, top)
        if start in live:
            known.start = start

    @rule(by=INSTANCE, chat=WHICH, which=WHICH)
    def delete_twice(self, by: int, chat: int, which: int) -> None:
        """The end of the path and then something before it, so that a restored message may follow a deleted one."""
        chat_id = self.chat(chat)
        if chat_id is not None and self.model.chats[chat_id].leaf is not None:
            path = self.stores[by].load(chat_id).path()
            self.delete_message(by, chat_id, path[-1].id)
            if len(path) > 1:
                self.delete_message(by, chat_id, path[which % (len(path) - 1)].id)

    @rule(by=INSTANCE, which=st.integers(0, 9))
    def delete_or_restore_a_chat(self, by: int, which: int) -> None:
        if which >= len(self.model.chats):
            return
        chat_id = sorted(self.model.chats)[which]
        known = self.model.chats[chat_id]
        (self.stores[by].restore_chat if known.is_deleted else self.stores[by].delete_chat)(chat_id)
        known.is_deleted = not known.is_deleted

    @rule(by=INSTANCE)
    def leave_and_come_back(self, by: int) -> None:
        """What it was writing is interrupted then."""
        self.stores[by].close()
        self.stores[by] = ChatStore(Path(self.folder.name) / "chats.db")
        for message_id, message in self.model.messages.items():
            if message.writer == by:
                self.model.messages[message_id] = replace(message, state=MessageState.INTERRUPTED, writer=None)

    @invariant()
    def both_show_what_must_be(self) -> None:
        for store in self.stores:
            chats = {summary.id for summary in store.chats()}
            assert chats == {chat_id for chat_id, chat in self.model.chats.items() if not chat.is_deleted}
            for chat_id in chats:
                conversation = store.load(chat_id)
                known = self.model.chats[chat_id]
                shown = {m.id: (m.parent, m.role, m.text, m.state) for m in conversation.messages.values()}
                live = self.model.live(chat_id)
                assert shown == {i: (m.parent, m.role, m.text, m.state) for i, m in live.items()}
                assert (conversation.leaf, conversation.start) == (known.leaf, known.start)
                ids = [message.id for message in conversation.path()]
                assert ids == sorted(ids)

    @invariant()
    def search_finds_what_there_is(self) -> None:
        """Every text is the word and a number."""
        expected = {
            message_id: message.text.split()[1]
            for message_id, message in self.model.messages.items()
            if message.deletion is None
            and message.state is not MessageState.STREAMING
            and not self.model.chats[message.chat].is_deleted
        }
        for store in self.stores:
            hits = store.search("text", limit=1000)
            assert {hit.message_id: hit.after.strip() for hit in hits} == expected

    def teardown(self) -> None:
        for store in self.stores:
            with store._database.writing() as connection:  # SQLite compares its indexes with the texts
                connection.execute("INSERT INTO message_index (message_index, rank) VALUES ('integrity-check', 1)")
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            store.close()
        self.folder.cleanup()


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    derandomize=True,
    deadline=None,
    max_examples=150,
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow],
)
