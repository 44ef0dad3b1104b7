-- Requests wait here while there is no usable server, or while the mode is "hold": up to hold_s seconds, at most
-- hold_max at a time. Cooperative sleep: no thread is blocked. The values live in ctl.map and change at run time
-- (set map ../ctl.map mode open|hold|refuse).
local ctl = Map.new("../ctl.map", Map._str)
local held, total, timed_out, full = 0, 0, 0, 0

local function number(key, default)
  return tonumber(ctl:lookup(key) or "") or default
end

local function blocked(txn, backend)
  return ctl:lookup("mode") == "hold" or txn.f:nbsrv(backend) == 0
end

core.register_action("hold", { "http-req" }, function(txn, backend)
  if not blocked(txn, backend) then return end
  if held >= number("hold_max", 256) then
    full = full + 1
    txn:set_var("txn.hold", "full")
    return
  end
  held = held + 1
  total = total + 1
  local began, waited_s = core.now(), 0
  while waited_s < number("hold_s", 60) and ctl:lookup("mode") ~= "refuse" and blocked(txn, backend) do
    core.msleep(50)
    local now = core.now()
    waited_s = (now.sec - began.sec) + (now.usec - began.usec) / 1e6
  end
  held = held - 1
  txn:set_var("txn.held_ms", math.floor(waited_s * 1000))
  if ctl:lookup("mode") == "refuse" or blocked(txn, backend) then
    timed_out = timed_out + 1
    txn:set_var("txn.hold", "refused")
  else
    txn:set_var("txn.hold", "released")
  end
end, 1)

core.register_cli({ "show", "held" }, "show held : requests that wait now, and counters", function(applet)
  applet:send(string.format("held=%d held_total=%d timed_out=%d refused_full=%d\n", held, total, timed_out, full))
end)
