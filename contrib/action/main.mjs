// Acquires the permit, and leaves a process that renews it. This process reads the handle in a file of this
// user, and ends when post.mjs has removed the file, when the store has no such permit, or with the runner.
import { spawn, spawnSync } from "node:child_process";
import { appendFileSync, mkdtempSync, openSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const input = (name) => (process.env[`INPUT_${name.toUpperCase()}`] ?? "").trim();
// A name may come from an untrusted branch or title: a line break in it would begin a command to the runner.
const escapes = { "%": "%25", "\r": "%0D", "\n": "%0A" };
const print = (command, text) => console.log(command + text.replace(/[%\r\n]/g, (sign) => escapes[sign]));
const put = (file, name, value) => appendFileSync(process.env[file], `${name}=${value}\n`);

const options = ["limit", "weight", "lease", "at-least", "lane", "holder"];
const words = options.filter(input).map((name) => `--${name}=${input(name)}`);
// A label has 120 bytes at most.
const cut = (text) => (Buffer.byteLength(text) > 120 ? cut([...text].slice(0, -1).join("")) : text);
if (input("label")) words.push(`--label=${cut(input("label"))}`);
if (input("timeout")) words.push(input("timeout") === "0" ? "--no-wait" : `--wait=${input("timeout")}`);

const program = input("program") || "permits";
const env = { ...process.env, PERMITS_URL: input("url") };
// The command refuses both.
delete env.PERMITS_URL_FILE;
const stdio = ["ignore", "pipe", "inherit"];
const acquire = spawn(program, ["acquire", "--json", ...words, "--", input("name")], { env, stdio });
// A job that is cancelled leaves the line.
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => acquire.kill("SIGTERM"));
let printed = "";
acquire.stdout.on("data", (data) => (printed += data));
acquire.on("error", (error) => {
  print("::error::", `${program} cannot be started: ${error.message}`);
  process.exitCode = 1;
});
acquire.on("close", (code, signal) => {
  if (code !== 0) {
    const reason = `no permit of ${input("name")}: permits ended with ${code ?? signal}`;
    if (process.exitCode === undefined) print("::error::", reason);
    process.exitCode = 1;
    return;
  }
  const permit = JSON.parse(printed);
  try {
    keep(permit);
  } catch (error) {
    // Without a note of it the post step cannot release it.
    const stdio = ["pipe", "ignore", "inherit"];
    const { status } = spawnSync(program, ["release", "-"], { env, input: permit.handle, stdio });
    const ends = status === 0 ? "was released" : "ends with its lease";
    print("::error::", `the permit ${ends}, because it cannot be noted: ${error.message}`);
    process.exitCode = 1;
  }
});

function keep({ handle, slot, token, remaining_ms: remaining }) {
  print("::add-mask::", handle);
  const directory = mkdtempSync(join(process.env.RUNNER_TEMP || tmpdir(), "permits-"));
  const file = join(directory, "handle");
  writeFileSync(file, handle, { mode: 0o600 });
  for (const [name, value] of Object.entries({ slot, token, handle })) put("GITHUB_OUTPUT", name, value);

  const log = openSync(join(directory, "log"), "a", 0o600);
  const script = fileURLToPath(new URL("renew.mjs", import.meta.url));
  const renew = [script, program, file, String(remaining / 3), String(process.ppid)];
  spawn(process.execPath, renew, { env, detached: true, stdio: ["ignore", log, log] }).unref();
  put("GITHUB_STATE", "file", file);
  print("", `permit of ${input("name")}: slot ${slot}, token ${token}`);
}
