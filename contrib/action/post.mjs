// Releases the permit, and fails if it was lost before.
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";

const file = process.env.STATE_file;
// Other programs of the job can write this state. The directory of the file is deleted, so it has to be
// one that main.mjs has made.
const isOurs = () => {
  const directory = dirname(resolve(file));
  const isNamed = basename(file) === "handle" && basename(directory).startsWith("permits-");
  return isNamed && dirname(directory) === resolve(process.env.RUNNER_TEMP || tmpdir());
};
function fail(reason) {
  console.log(`::error::${reason}`);
  process.exitCode = 1;
}

// The step has no file if it acquired no permit.
if (file && !isOurs()) {
  fail("the state of the step was changed: the permit is not released, and ends with its lease");
} else if (file && !existsSync(file)) {
  fail("the file with the handle was removed: the permit is not released, and ends with its lease");
} else if (file) {
  const handle = readFileSync(file, "utf8");
  rmSync(file);
  const env = { ...process.env, PERMITS_URL: process.env.INPUT_URL.trim() };
  delete env.PERMITS_URL_FILE;
  const program = (process.env.INPUT_PROGRAM ?? "").trim() || "permits";
  const stdio = ["pipe", "inherit", "inherit"];
  const released = spawnSync(program, ["release", "-"], { env, input: handle, stdio });
  if (released.status !== 0) {
    const log = join(dirname(file), "log");
    if (existsSync(log)) process.stdout.write(readFileSync(log));
    const lost = "the permit was lost during the job, so another holder may have used the resource";
    const failed = `the permit was not released: permits ended with ${released.status}`;
    fail(released.status === 76 ? lost : failed);
  }
  rmSync(dirname(file), { recursive: true, force: true });
}
