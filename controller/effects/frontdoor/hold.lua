-- Requests wait here while no server is usable, or while the mode is "hold": up to hold_s seconds, at most hold_max at a
-- time, and they go on in the order in which they came. The values live in ctl.map and change at run time
-- (set map ../ctl.map mode open|hold|refuse).
--
-- Nobody polls but one task: a request that waits sleeps in a queue of its own until the task puts its verdict there.
-- The public address belongs to one thread (haproxy.cfg), which runs what it is woken for in the order of the wakes.
-- HAProxy may interrupt the task between any two instructions, so the requests share only queues with it, whose
-- operations are whole, and the number that the task stores.
local BACKEND = "engines"
local POLL_MS = 20
local BATCH, PACE_MS = 32, 10 -- how many are released at once, and the pause after them
local LOOK_MS = 500 -- how often the kernel is asked which clients are still there
local SOCKETS = { "/proc/net/tcp", "/proc/net/tcp6" }
local ESTABLISHED = "01"

local ctl = Map.new("../ctl.map", Map._str)
local arrived = core.queue() -- from the requests to the task
local waiting, known = {}, 0 -- the task's own, in the order of arrival; how many they are
local answered = 0 -- of them: have their verdict
local count = { held_total = 0, released = 0, timed_out = 0, refused = 0, full = 0, left = 0 }

local function number(key, default)
  return tonumber(ctl:lookup(key) or "") or default
end

local function held()
  return arrived:size() + known
end

local function now_s()
  local now = core.now()
  return now.sec + now.usec / 1e6
end

local function ready()
  return core.backends[BACKEND]:get_srv_act() -- without the backup, which is the way back into the hold
end

local function blocked()
  local mode = ctl:lookup("mode")
  return mode == "hold" or mode == "refuse" or ready() == 0
end

local function all_are_in(there)
  for _, one in ipairs(waiting) do
    if there[one.socket] ~= ESTABLISHED then return false end
  end
  return true
end

-- HAProxy reads nothing from a client whose request it has until it has chosen a server, so it does not see it leave. The
-- kernel does: a client that closed has left ESTABLISHED. By the two ports alone, which is the same for IPv4 and IPv6;
-- of two clients that share them, both count as there while one is. Returns nil where the kernel does not tell.
local function clients_there()
  local there, told = {}, false
  for _, path in ipairs(SOCKETS) do
    local file = not (told and all_are_in(there)) and io.open(path) -- a list costs milliseconds where there is much memory
    if file then
      told = true
      for line in file:lines() do
        local here, peer, state = line:match("^%s*%d+: %x+:(%x+) %x+:(%x+) (%x+)")
        if here and (state == ESTABLISHED or not there[here .. peer]) then there[here .. peer] = state end
      end
      file:close()
    end
  end
  return told and there or nil
end

-- The list of sockets is not one moment's: what is missing must be missing twice.
local function has_left(one, there)
  local state = there[one.socket]
  one.missed = state and 0 or one.missed + 1
  return (state and state ~= ESTABLISHED) or one.missed > 1
end

local function send(one, verdict)
  one.verdict = verdict
  answered = answered + 1
  count[verdict] = count[verdict] + 1
  one.queue:push(verdict)
end

local function take_in(one)
  waiting[#waiting + 1] = one
  known = #waiting
end

local function forget_answered()
  if answered == 0 then return end
  local still = {}
  for _, one in ipairs(waiting) do
    if not one.verdict then still[#still + 1] = one end
  end
  waiting, known, answered = still, #still, 0
end

local function dismiss_who_left()
  local there = clients_there()
  for _, one in ipairs(there and waiting or {}) do
    if has_left(one, there) then send(one, "left") end
  end
end

local function dismiss_who_waited_long_enough()
  local refuses, limit_s, now = ctl:lookup("mode") == "refuse", number("hold_s", 60), now_s()
  for _, one in ipairs(waiting) do
    if one.verdict then -- left
    elseif refuses then send(one, "refused")
    elseif now - one.began_s >= limit_s then send(one, "timed_out")
    else return end -- who came later has not waited as long
  end
end

-- A few at a time: an engine that has just come up does not get all of them at once, and the door may close again.
local function release_some()
  local left_over = BATCH
  for _, one in ipairs(waiting) do
    if left_over == 0 then return end
    if not one.verdict then
      send(one, "released")
      left_over = left_over - 1
    end
  end
end

core.register_task(function()
  local looked_s = 0
  while true do
    if #waiting == 0 then take_in(arrived:pop_wait()) end
    while arrived:size() > 0 do take_in(arrived:pop()) end
    local opened = not blocked()
    if opened or now_s() - looked_s >= LOOK_MS / 1000 then -- before a release too: who left is not forwarded
      dismiss_who_left()
      looked_s = now_s()
    end
    if opened then release_some() else dismiss_who_waited_long_enough() end
    forget_answered()
    if #waiting > 0 then core.msleep(opened and PACE_MS or POLL_MS) end
  end
end)

core.register_action("hold", { "http-req" }, function(txn)
  if held() == 0 and not blocked() then return end
  if held() >= number("hold_max", 256) then
    count.full = count.full + 1
    txn:set_var("txn.hold", "full")
    return
  end
  local one = {
    queue = core.queue(),
    socket = string.format("%04X%04X", txn.f:dst_port(), txn.f:src_port()),
    began_s = now_s(),
    missed = 0,
  }
  count.held_total = count.held_total + 1
  txn:set_var("txn.hold", "left") -- what remains when HAProxy itself ends the wait
  arrived:push(one)
  local verdict = one.queue:pop_wait()
  txn:set_var("txn.held_ms", math.floor((now_s() - one.began_s) * 1000))
  txn:set_var("txn.hold", verdict)
end)

core.register_fetches("ready", ready)

core.register_cli({ "show", "held" }, "show held : requests that wait now, and counters", function(applet)
  local totals = {}
  for name, value in pairs(count) do totals[#totals + 1] = name .. "=" .. value end
  table.sort(totals)
  local first = waiting[1]
  totals[#totals + 1] = string.format("oldest_s=%.3f", first and now_s() - first.began_s or 0)
  applet:send("held=" .. held() .. " " .. table.concat(totals, " ") .. "\n")
end)
