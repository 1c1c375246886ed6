-- lanes: the records of lanes, as in src/model/lanes.rs. The functions of all files about lanes are for all
-- courses. To make them costs as much as a call, and most commands meet no lane: a course makes those that it
-- needs.
--
-- While `lanes`, the number of lanes that wait, is not 0, each of them is a member of the key lanes, its number
-- and its name, by its progress; its record is a field of the state, a tab, ':' and its name: number, next
-- ticket, waiters. A lane that owes is a member '-' and its name, by its progress below 0.

local lanes, last_lane, LANES_MAX, TICKETS = 0, 0, 262143, 4294967296
local lane_of, set_queued, tickets_of, member_of, owing, record_of, change_lane, write_lanes
local place_in, join   -- made in lane_join

local function make_lanes()
  -- By name, as far as they were read, false if there is none; and the names of those to write.
  local records, changed = {}, {}

  -- The lane that an entry names.
  function lane_of(entry)
    local flags, _, _, request_bytes, session_bytes, at = struct.unpack('<BI4I4BB', entry)
    if flags % 16 < LANED then return '' end
    at = at + (flags % 4 > 1 and 8 or 0) + 10
    if request_bytes == 0 then _, at = struct.unpack('s', entry, at) end
    if session_bytes == 0 then _, at = struct.unpack('s', entry, at) end
    return (struct.unpack('s', entry, at))
  end

  -- The entry of a waiter that names a lane or a share with the time at which it was queued; any other as it
  -- is.
  function set_queued(entry, queued)
    local flags = string.byte(entry)
    if flags % 16 < LANED then return entry end
    local at = ENTRY_BYTES + (flags % 4 > 1 and 8 or 0) + 2
    return table.concat({ string.sub(entry, 1, at), struct.pack('<d', queued), string.sub(entry, at + 9) })
  end

  -- The first and the last ticket of a lane.
  function tickets_of(name, number)
    if name == '' then return 1125899906842624, '+inf' end
    return number * TICKETS, number * TICKETS + TICKETS - 1
  end

  function member_of(name, number)
    return string.format('%06.0f%s', number, name)
  end

  function owing(name)
    return string.format('-%s', name)
  end

  -- The record of a lane that waits, or nil.
  function record_of(name)
    if records[name] == nil then
      local found, record = redis.call('HGET', state_key, string.format('\t:%s', name)), {}
      if found then record.number, record.next, record.waiting = struct.unpack('<ddd', found) end
      records[name] = found and record
    end
    return records[name] or nil
  end

  -- Sets the record of a lane, or false if it waits no more. It is written by write_lanes.
  function change_lane(name, record)
    records[name], changed[name] = record, true
  end

  -- Appends the changed records to `fields`, as HSET takes them, and the fields of the lanes without one to
  -- `gone`.
  function write_lanes(fields, gone)
    for name in pairs(changed) do
      local record, field, n = records[name], string.format('\t:%s', name), #fields
      if record then
        fields[n + 1], fields[n + 2] = field, struct.pack('<ddd', record.number, record.next, record.waiting)
      else
        gone[#gone + 1] = field
      end
    end
    changed = {}
  end
end
