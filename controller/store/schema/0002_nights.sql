-- No table changes. Records say what a version that knows only schema 1 would carry on wrongly: it would begin by day what
-- waits for a window, and switch users to a trial. By this number it refuses the journal, and changes nothing.
SELECT 1;
