-- Forward only; PRAGMA user_version counts the files.
CREATE TABLE records (
    kind TEXT NOT NULL,          -- state | release | rollout | attempt
    id   TEXT NOT NULL,
    body TEXT NOT NULL,          -- JSON of the record in core/records.py
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;

CREATE TABLE journal (
    seq       INTEGER PRIMARY KEY AUTOINCREMENT,
    wall_s    REAL NOT NULL,
    boot_id   TEXT NOT NULL,
    boot_s    REAL NOT NULL,
    action    TEXT NOT NULL,     -- class name in core/actions.py
    subject   TEXT NOT NULL,     -- rollout, attempt or run it is about
    rollout   TEXT NOT NULL,     -- rollout it belongs to, or ''
    why       TEXT NOT NULL,
    detail    TEXT NOT NULL,     -- JSON of the action
    outcome   TEXT,              -- NULL: an effect whose outcome is not known (yet)
    ended_s   REAL
);
CREATE INDEX journal_rollout ON journal (rollout, seq);

CREATE TABLE requests (          -- what was asked for, by whom; a repeated key does nothing
    key     TEXT PRIMARY KEY,
    wall_s  REAL NOT NULL,
    who     TEXT NOT NULL,
    verb    TEXT NOT NULL,
    answer  TEXT NOT NULL
) WITHOUT ROWID;
