-- Forward only; PRAGMA user_version counts the files. Nothing in here is ever edited or deleted: the triggers see to it.
PRAGMA application_id = 1129598023;  -- 'CTLG': so that another program's database is never taken for a ledger

CREATE TABLE runs (
    id             TEXT PRIMARY KEY,
    source         TEXT NOT NULL CHECK (source IN ('ours', 'reference')),
    kind           TEXT NOT NULL CHECK (kind IN ('cell', 'restart')),
    started_at     TEXT NOT NULL,    -- ISO 8601, UTC, whole seconds
    recorded_at    TEXT NOT NULL,
    recorded_by    TEXT NOT NULL,
    topology       TEXT NOT NULL,
    release        TEXT NOT NULL,    -- name@digest8, or ''
    digest         TEXT NOT NULL,    -- as much of it as was known, or ''
    engine         TEXT NOT NULL,
    engine_version TEXT NOT NULL,
    body           TEXT NOT NULL,    -- JSON: the rest of the configuration, start, origin, note, duration
    CHECK (source = 'ours' OR kind = 'cell')
) WITHOUT ROWID;

CREATE TABLE cells (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    run         TEXT NOT NULL REFERENCES runs (id),
    workload    TEXT NOT NULL,
    concurrency INTEGER NOT NULL,
    definition  TEXT NOT NULL,       -- JSON: the whole workload
    body        TEXT NOT NULL        -- JSON: requests, rounds, figures, failures, problem
);
CREATE INDEX cells_run ON cells (run);
CREATE INDEX runs_digest ON runs (digest);

CREATE TABLE retractions (
    cell   INTEGER PRIMARY KEY REFERENCES cells (id),
    at     TEXT NOT NULL,
    who    TEXT NOT NULL,
    reason TEXT NOT NULL
);

CREATE TRIGGER runs_stay BEFORE UPDATE ON runs BEGIN SELECT RAISE(ABORT, 'a ledger is never edited'); END;
CREATE TRIGGER runs_remain BEFORE DELETE ON runs BEGIN SELECT RAISE(ABORT, 'a ledger is never edited'); END;
CREATE TRIGGER cells_stay BEFORE UPDATE ON cells BEGIN SELECT RAISE(ABORT, 'a ledger is never edited'); END;
CREATE TRIGGER cells_remain BEFORE DELETE ON cells BEGIN SELECT RAISE(ABORT, 'a ledger is never edited'); END;
CREATE TRIGGER retractions_stay BEFORE UPDATE ON retractions
    BEGIN SELECT RAISE(ABORT, 'a ledger is never edited'); END;
CREATE TRIGGER retractions_remain BEFORE DELETE ON retractions
    BEGIN SELECT RAISE(ABORT, 'a ledger is never edited'); END;
