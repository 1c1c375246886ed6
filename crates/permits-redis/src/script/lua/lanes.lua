-- lanes: the records of lanes, as in model/lanes.rs of permits-core. A script that meets no lane ends before.
--
-- Each lane that waits is a member of the key lanes: its number and its name, with its progress as the score.
-- Its record is a field of the state, a tab, ':' and its name: number, next ticket, waiters, and its progress
-- on the other side of its floor, if that is not 1. A lane that owes is a member '-' and its name, with its
-- progress below 0 as the score. While the lane waits again, that member has no meaning. `lanes` is the
-- number of lanes that wait; while it is 0, the key does not exist.

knows_lanes = true   -- from here on

-- The records by name, as far as they were read (false: no record), and the names of records to write.
local records, changed = {}, {}

-- The lane that an entry names, and the offset behind its name.
local function lane_of(entry)
  local flags, _, _, request_bytes, session_bytes, at = struct.unpack('$ENTRY', entry)
  if flags % 16 < $LANED then return '' end
  at = at + (flags % 4 >= $TIMES and $TIMES_BYTES or 0) + $LANED_BYTES
  if request_bytes == 0 then _, at = struct.unpack('s', entry, at) end
  if session_bytes == 0 then _, at = struct.unpack('s', entry, at) end
  return struct.unpack('s', entry, at)
end

-- The entry with the time at which it was queued, if it names a lane or a share; any other entry as it is.
local function set_queued(entry, queued)
  local flags = string.byte(entry)
  if flags % 16 < $LANED then return entry end
  local at = $ENTRY_BYTES + (flags % 4 >= $TIMES and $TIMES_BYTES or 0) + $SHARE_BYTES
  return table.concat({ string.sub(entry, 1, at), struct.pack('<d', queued), string.sub(entry, at + 9) })
end

-- A number as text for a score. The server would make a longer text, and take longer to read it.
local function text_of(number)
  return string.format(number % 1 == 0 and number < $FULL and '%.0f' or '%.17g', number)
end

-- The first ticket of a lane. From there on the queue begins with its waiters: its record has their number.
local function first_ticket(name, number)
  return name == '' and '1125899906842624' or string.format('%.0f', number * $TICKETS)
end

local function member_of(name, number)
  return string.format('%06d%s', number, name)
end

-- The record of a lane that waits, or nil; `found` is its field, if that has been read.
local function record_of(name, found)
  if records[name] == nil then
    if found == nil then found = redis.call('HGET', state_key, string.format('\t:%s', name)) end
    records[name] = found and {}
    if found then
      local record = records[name]
      record.number, record.next, record.waiting = struct.unpack('<ddd', found)
      record.other = #found > 24 and struct.unpack('<d', found, 25) or 1
    end
  end
  return records[name] or nil
end

-- Sets the record of a lane, or false if it waits no more. It is written by write_lanes.
local function change_lane(name, record)
  records[name], changed[name] = record, true
end

-- Appends the changed records to `fields`, as HSET takes them, and the fields of the lanes without one to
-- `gone`.
local function write_lanes(fields, gone)
  for name in pairs(changed) do
    local record, field, n = records[name], string.format('\t:%s', name), #fields
    if record then
      local other = record.other ~= 1 and struct.pack('<d', record.other) or ''
      fields[n + 1], fields[n + 2] = field, struct.pack('<dddc0', record.number, record.next, record.waiting, other)
    else
      gone[#gone + 1] = field
    end
  end
  changed = {}
end
