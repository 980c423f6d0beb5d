"""The store in several processes: written by two at once, killed, and on a full disk."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.chat.conversation import MessageState
from app.chat.errors import StoreError
from app.chat.preferences.settings import ChatSettings
from app.chat.storage.store import ChatStore
from engine.messages import Role
from tests.app.command import ROOT

N_MESSAGES = 100


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "octavo" / "chats.db"


def child(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Python with a store open as `store` on the first argument."""
    before = (
        "import sys; from pathlib import Path\n"
        "from app.chat.conversation import MessageState; from app.chat.preferences.settings import ChatSettings\n"
        "from app.chat.storage.store import ChatStore; from engine.messages import Role\n"
        "store = ChatStore(Path(sys.argv[1]))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", before + code, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().rstrip("\n")


def kill(process: subprocess.Popen[bytes]) -> None:
    with process:
        process.send_signal(signal.SIGKILL)


def test_two_writers_lose_nothing(file: Path) -> None:
    """Each writes a branch of its own into one chat, and both into the chat's list of branches."""
    code = f"""if True:
        import sys
        chat, root, name = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
        parent = root
        for number in range({N_MESSAGES}):
            message = store.add_message(chat, parent, Role.USER, f"{{name}} {{number}}", MessageState.STREAMING)
            store.update_message(message.id, text=f"{{name}} {{number}} changed", state=MessageState.COMPLETE)
            store.rename(chat, f"{{name}} {{number}}")
            token = store.delete_messages(chat, message.id)
            store.restore_messages(token)
            parent = message.id
        store.close()
    """
    with ChatStore(file) as store:
        chat = store.create_chat(ChatSettings())
        root = store.add_message(chat.id, None, Role.USER, "root").id
        writers = [child(code, file, chat.id, root, name) for name in ("one", "two")]
        for writer in writers:
            _, errors = writer.communicate()
            assert errors == b""
        assert store.changed()
        conversation = store.load(chat.id)
        branches = [conversation.path(conversation.newest_leaf(branch)) for branch in conversation.children(root)]
        texts = {tuple(message.text for message in branch[1:]) for branch in branches}
        assert texts == {tuple(f"{name} {number} changed" for number in range(N_MESSAGES)) for name in ("one", "two")}
        assert len(store.search("changed", limit=1000)) == 2 * N_MESSAGES


def test_what_a_killed_app_has_stored_is_there(file: Path) -> None:
    """Killed again and again while it writes: all messages that it has reported are there, whole and found."""
    code = """if True:
        chat = store.create_chat(ChatSettings())
        parent = None
        while True:
            parent = store.add_message(chat.id, parent, Role.USER, "word " * 2000 + "end").id
            print(chat.id, parent, flush=True)
    """
    for _ in range(3):
        writer = child(code, file)
        reported = [line(writer) for _ in range(20)]
        kill(writer)
        with ChatStore(file) as store:
            for chat_id, message_id in (map(int, report.split()) for report in reported):
                assert store.load(chat_id).messages[message_id].text == "word " * 2000 + "end"
            path = [message.id for message in store.load(chat_id).path()]
            assert path == list(store.load(chat_id).messages)
            hits = store.search("end", limit=10_000)
            assert [hit.message_id for hit in hits if hit.chat_id == chat_id] == path[::-1]


def test_a_reply_of_a_killed_app_is_interrupted_and_one_of_a_running_app_is_not(file: Path) -> None:
    code = """if True:
        chat = store.create_chat(ChatSettings())
        message = store.add_message(chat.id, None, Role.ASSISTANT, "", MessageState.STREAMING)
        store.update_message(message.id, text="A paragraph.")
        print(chat.id, message.id, flush=True)
        sys.stdin.readline()
    """
    writers = [child(code, file) for _ in range(2)]
    ids = [tuple(map(int, line(writer).split())) for writer in writers]
    with ChatStore(file) as store:

        def states() -> list[MessageState]:
            return [store.load(chat_id).messages[message_id].state for chat_id, message_id in ids]

        assert states() == [MessageState.STREAMING] * 2
        with pytest.raises(StoreError, match="another window"):
            store.update_message(ids[0][1], text="mine")
        kill(writers[0])
        assert states() == [MessageState.INTERRUPTED, MessageState.STREAMING]
        assert store.load(ids[0][0]).messages[ids[0][1]].text == "A paragraph."
        assert [hit.message_id for hit in store.search("paragraph")] == [ids[0][1]]
        store.update_message(ids[0][1], text="mine", state=MessageState.COMPLETE)
    with ChatStore(file) as store:  # whoever comes next leaves what the other one is writing alone
        assert states() == [MessageState.COMPLETE, MessageState.STREAMING]
    kill(writers[1])
    with ChatStore(file) as store:
        assert [hit.message_id for hit in store.search("paragraph")] == [ids[1][1]]
        assert states() == [MessageState.COMPLETE, MessageState.INTERRUPTED]
        assert len(list((file.parent / "chats.db-running").iterdir())) == 1  # ours


def test_a_full_disk_is_an_error_in_words_and_nothing_is_lost(file: Path) -> None:
    """Files that cannot grow any more stand for the disk. What failed can be tried again when there is room."""
    with ChatStore(file) as store:
        chat = store.create_chat(ChatSettings(), "Title")
        store.add_message(chat.id, None, Role.USER, "before")
    code = """if True:
        import resource
        from app.chat.errors import StoreError
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        chat, n_stored = int(sys.argv[2]), 0
        for _ in range(2):
            try:
                while True:
                    store.add_message(chat, None, Role.USER, f"stored {n_stored} " + "x" * 1000)
                    n_stored += 1
            except StoreError as error:
                print(error, flush=True)
        try:
            store.rename(chat, "Other " * 10000)
        except StoreError as error:
            print(error, flush=True)
        print(n_stored, len(store.load(chat).messages), store.summary(chat).title, flush=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        store.add_message(chat, None, Role.USER, "room again")
    """
    output, errors = child(code, file, chat.id).communicate()
    assert errors == b""
    *sentences, counts = output.decode().splitlines()
    assert len(sentences) == 3
    assert all("disk" in sentence and str(file) in sentence for sentence in sentences)
    n_stored = int(counts.split()[0])
    assert n_stored > 3
    assert counts == f"{n_stored} {n_stored + 1} Title"
    with ChatStore(file) as store:
        texts = [message.text for message in store.load(chat.id).messages.values()]
        assert texts == ["before", *(f"stored {number} " + "x" * 1000 for number in range(n_stored)), "room again"]
        assert len(store.search("stored", limit=1000)) == n_stored
