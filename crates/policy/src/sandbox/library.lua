-- What a policy may use of Lua: the same on every machine and in every run, and nothing that runs on
-- inside C where no count of instructions sees it. Called with `spend(instructions)`; returns the
-- globals.
local spend = ...

local error, type, select, tonumber, rawget, rawset = error, type, select, tonumber, rawget, rawset
local rawequal, rawlen, getmetatable, setmetatable = rawequal, rawlen, getmetatable, setmetatable
local raw_next, raw_tostring, raw_string, raw_table, raw_math = next, tostring, string, table, math

-- An error of the caller's, whatever functions of the library stand between.
local function wrong(what)
  error(what, 3)
end

-- Text without addresses, which differ from run to run.
local function tostring(value)
  local kind = type(value)
  if kind == "table" then
    local meta = getmetatable(value)
    if type(meta) == "table" and rawget(meta, "__tostring") then
      return raw_tostring(value)
    end
    return "table"
  elseif kind == "function" or kind == "thread" then
    return kind
  end
  return raw_tostring(value)
end

-- Keys in order: numbers, then text, then false and true.
local ranks = { number = 1, string = 2, boolean = 3 }

local function before(a, b)
  local rank_a, rank_b = ranks[type(a)], ranks[type(b)]
  if rank_a ~= rank_b then
    return rank_a < rank_b
  elseif rank_a == 3 then
    return not a and b
  end
  return a < b
end

-- A stable merge sort: equal elements keep their order.
local function sort(list, less)
  less = less or function(a, b)
    return a < b
  end
  local count = #list
  local from, to = list, {}
  local width = 1
  while width < count do
    for low = 1, count, 2 * width do
      local left, middle, right = low, low + width, low + width
      local last = low + 2 * width - 1
      if last > count then
        last = count
      end
      for at = low, last do
        if left < middle and (right > last or not less(from[right], from[left])) then
          to[at] = from[left]
          left = left + 1
        else
          to[at] = from[right]
          right = right + 1
        end
      end
    end
    from, to = to, from == list and {} or from
    width = 2 * width
  end
  if from ~= list then
    for at = 1, count do
      list[at] = from[at]
    end
  end
end

local function keys(table)
  local found, count = {}, 0
  for key in raw_next, table do
    if not ranks[type(key)] then
      error("a " .. type(key) .. " is a key here, and keys that are neither numbers nor text have no order "
        .. "that is the same in every run; use names", 4)
    end
    count = count + 1
    found[count] = key
  end
  sort(found, before)
  return found
end

local function pairs(table)
  if type(table) ~= "table" then
    wrong("pairs takes a table, not a " .. type(table))
  end
  local order, at = keys(table), 0
  return function()
    while true do
      at = at + 1
      local key = order[at]
      if key == nil then
        return nil
      end
      local value = rawget(table, key)
      if value ~= nil then
        return key, value
      end
    end
  end, table, nil
end

local function ipairs(table)
  if type(table) ~= "table" then
    wrong("ipairs takes a list, not a " .. type(table))
  end
  local at = 0
  return function()
    at = at + 1
    local value = table[at]
    if value ~= nil then
      return at, value
    end
  end, table, 0
end

local function next(table, key)
  local order = keys(table)
  if key == nil then
    return order[1], table[order[1]]
  end
  for at = 1, #order do
    if rawequal(order[at], key) then
      return order[at + 1], table[order[at + 1]]
    end
  end
  wrong("next: no such key")
end

local function setmeta(table, meta)
  if type(meta) == "table" and (rawget(meta, "__gc") or rawget(meta, "__close")) then
    wrong("a policy has no finalisers")
  end
  return setmetatable(table, meta)
end

local function getmeta(value)
  if type(value) ~= "table" then
    wrong("getmetatable takes a table, not a " .. type(value))
  end
  return getmetatable(value)
end

local function assert(value, message, ...)
  if not value then
    wrong(message == nil and "assertion failed" or tostring(message))
  end
  return value, message, ...
end

local string = {
  byte = raw_string.byte, char = raw_string.char, len = raw_string.len, lower = raw_string.lower,
  reverse = raw_string.reverse, sub = raw_string.sub, upper = raw_string.upper,
}

function string.rep(text, count, between)
  text, between = raw_tostring(text), between or ""
  if count > 0 and (#text + #between + 1) * count > 65536 then
    wrong("string.rep makes no more than 65536 bytes")
  end
  return raw_string.rep(text, count, between)
end

-- Without patterns: the time that one takes is not bounded by the lengths of text and pattern.
function string.find(text, part, from)
  spend(#text // 16)
  return raw_string.find(text, part, from, true)
end

function string.format(form, ...)
  local plain = raw_string.gsub(form, "%%%%", "")
  if raw_string.find(plain, "%%[-+ #0-9.]*p") then
    wrong("string.format: addresses (%p) differ from run to run")
  end
  local values = raw_table.pack(...)
  for at = 1, values.n do
    local kind = type(values[at])
    if kind == "table" or kind == "function" or kind == "userdata" then
      values[at] = tostring(values[at])
    end
  end
  return raw_string.format(form, raw_table.unpack(values, 1, values.n))
end

-- Methods of text (`name:sub(1, 2)`) are these, too.
getmetatable("").__index = string

-- Functions that walk a list inside C pay for its length.
local table = { pack = raw_table.pack, sort = sort }

local function length(list, what)
  if type(list) ~= "table" then
    error(what .. " takes a list, not a " .. type(list), 3)
  end
  local count = rawlen(list)
  if getmetatable(list) and count ~= #list then
    error(what .. " takes a plain list", 3)
  end
  spend(count // 16)
  return count
end

function table.concat(list, between, from, to)
  local count = length(list, "table.concat")
  from, to = from or 1, to or count
  if from < 1 or to > count then
    wrong("table.concat: the list has " .. count .. " elements")
  end
  local texts = {}
  for at = from, to do
    texts[at] = tostring(list[at])
  end
  return raw_table.concat(texts, between, from, to)
end

function table.insert(list, ...)
  length(list, "table.insert")
  return raw_table.insert(list, ...)
end

function table.remove(list, ...)
  length(list, "table.remove")
  return raw_table.remove(list, ...)
end

function table.unpack(list, from, to)
  from, to = from or 1, to or length(list, "table.unpack")
  if to - from > 65536 then
    wrong("table.unpack: more than 65536 values")
  end
  return raw_table.unpack(list, from, to)
end

local math = {
  abs = raw_math.abs, ceil = raw_math.ceil, exp = raw_math.exp, floor = raw_math.floor, fmod = raw_math.fmod,
  huge = raw_math.huge, log = raw_math.log, max = raw_math.max, maxinteger = raw_math.maxinteger,
  min = raw_math.min, mininteger = raw_math.mininteger, modf = raw_math.modf, sqrt = raw_math.sqrt,
  tointeger = raw_math.tointeger, type = raw_math.type, ult = raw_math.ult,
}

local globals = {
  assert = assert, error = error, getmetatable = getmeta, ipairs = ipairs, math = math, next = next,
  pairs = pairs, rawequal = rawequal, rawget = rawget, rawlen = rawlen, rawset = rawset, select = select,
  setmetatable = setmeta, string = string, table = table, tonumber = tonumber, tostring = tostring,
  type = type, _VERSION = _VERSION,
}
globals._G = globals

-- Why what people look for is not there.
local reasons = {}
local function absent(reason, ...)
  for at = 1, select("#", ...) do
    reasons[(select(at, ...))] = reason
  end
end
absent("a policy reads and writes no files; what it knows comes with the snapshot", "io", "dofile", "loadfile")
absent("a policy knows no clock and no environment; the time is snapshot.now_ns", "os")
absent("a policy is one file", "require", "package")
absent("a policy makes no code while it runs", "load", "loadstring", "debug", "coroutine")
absent("an error ends the decision, and the plan before stays in force", "pcall", "xpcall")
absent("memory is set free after each decision", "collectgarbage")
absent("text is bytes here; names of programs are ASCII", "utf8")

setmetatable(globals, {
  __index = function(_, name)
    local reason = reasons[name]
    error("there is no '" .. tostring(name) .. "' here" .. (reason and ": " .. reason or ""), 2)
  end,
  __metatable = false,
})
setmetatable(math, {
  __index = function(_, name)
    local random = name == "random" or name == "randomseed"
    error("there is no math." .. tostring(name) .. (random and ": a policy is not random; it decides the same "
      .. "for the same snapshot and memory" or ""), 2)
  end,
  __metatable = false,
})
setmetatable(string, {
  __index = function(_, name)
    local pattern = name == "match" or name == "gmatch" or name == "gsub"
    error("there is no string." .. tostring(name) .. (pattern and ": patterns can run for ever; string.find "
      .. "finds plain text" or ""), 2)
  end,
  __metatable = false,
})
return globals
