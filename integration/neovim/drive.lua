-- Drives CodeCompanion in a headless Neovim, by the steps of a JSON file, and prints what the chat's buffer shows after each.
--
-- usage: nvim --headless -u NONE -i NONE -l drive.lua PLUGINS ADAPTER STEPS
--   PLUGINS: the folder with codecompanion.nvim and plenary.nvim
--   ADAPTER: the output of `threadway acp --print-config neovim`
--   STEPS:   a list of {"say": text}, {"press": the label of a choice}, {"resume": the number of a session} and {"again": true},
--            which ends the chat and opens another
-- Each line of the output is a JSON object: {"step": .., "shown": the buffer's text, "notices": the notifications}.

local PATIENCE_MS = 60000
local QUIET_MS = 500 -- the buffer is complete if nothing is added for so long
local POLL_MS = 20

local plugins, adapter, steps = unpack(arg)
for _, name in ipairs({ "plenary.nvim", "codecompanion.nvim" }) do
  vim.opt.rtp:append(vim.fs.joinpath(plugins, name))
end
vim.o.columns, vim.o.lines = 120, 60

local notices = {}
vim.notify = function(text)
  table.insert(notices, text)
end

local function read(path)
  return table.concat(vim.fn.readfile(path), "\n")
end

-- The printed settings are a member of the table that `setup` takes.
local printed = assert(load("return {\n" .. read(adapter) .. "\n}"))()
require("codecompanion").setup(vim.tbl_extend("error", printed, {
  interactions = { chat = { adapter = "threadway" } },
  opts = { log_level = "ERROR" },
}))
vim.cmd("runtime! plugin/codecompanion.lua")

local function wait(what, is_true)
  if not vim.wait(PATIENCE_MS, is_true, POLL_MS) then
    error(what .. " did not happen")
  end
end

local chat

local function shown()
  return table.concat(vim.api.nvim_buf_get_lines(chat.bufnr, 0, -1, false), "\n")
end

---@return string? keys
local function keys_of(label)
  for _, map in ipairs(vim.api.nvim_buf_get_keymap(chat.bufnr, "n")) do
    if map.desc == label then
      return map.lhs
    end
  end
end

-- Waits until the turn is over, or asks, and the buffer is complete.
local function settle()
  wait("the end of the turn", function()
    return chat.current_request == nil or keys_of("Cancel") ~= nil
  end)
  local text, since = nil, vim.uv.now()
  wait("a quiet buffer", function()
    if shown() ~= text then
      text, since = shown(), vim.uv.now()
    end
    return vim.uv.now() - since > QUIET_MS
  end)
end

local function open()
  vim.cmd("CodeCompanionChat adapter=threadway")
  chat = require("codecompanion").last_chat()
  wait("a session", function()
    return chat.acp_connection ~= nil and chat.acp_connection.session_id ~= nil
  end)
end

local STEPS = {
  say = function(text)
    vim.api.nvim_buf_set_lines(chat.bufnr, -1, -1, false, vim.split(text, "\n"))
    chat:submit()
    settle()
  end,
  press = function(label)
    local keys = assert(keys_of(label), "the buffer offers no " .. label .. ":\n" .. shown())
    vim.api.nvim_set_current_buf(chat.bufnr)
    vim.api.nvim_feedkeys(vim.keycode(keys), "mx", false)
    settle()
  end,
  again = function()
    chat:close()
    open()
  end,
  resume = function(number)
    vim.ui.select = function(items, _, choose)
      choose(items[number], number)
    end
    local resume = require("codecompanion.interactions.chat.slash_commands.builtin.resume")
    resume.new({ Chat = chat, config = {}, context = {} }):execute()
    settle()
  end,
}

local function run(step)
  local name, value = next(step)
  STEPS[name](value)
end

open()
for _, step in ipairs(vim.json.decode(read(steps))) do
  notices = {}
  local ok, why = pcall(run, step)
  io.stdout:write(vim.json.encode({ step = step, shown = shown(), notices = notices, fault = not ok and tostring(why) or nil }) .. "\n")
  if not ok then
    break
  end
end
pcall(function()
  chat:close()
end)
io.stdout:flush()
os.exit(0)
