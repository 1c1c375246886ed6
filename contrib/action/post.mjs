// Releases the permit, and fails if it was lost before.
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";

const file = process.env.STATE_file;
// There is none if no permit was acquired.
if (file) {
  const handle = readFileSync(file, "utf8");
  rmSync(file);
  const env = { ...process.env, PERMITS_URL: process.env.INPUT_URL.trim() };
  const program = (process.env.INPUT_PROGRAM ?? "").trim() || "permits";
  const stdio = ["pipe", "inherit", "inherit"];
  const released = spawnSync(program, ["release", "-"], { env, input: handle, stdio });
  if (released.status !== 0) {
    const log = join(dirname(file), "log");
    if (existsSync(log)) process.stdout.write(readFileSync(log));
    const lost = "the permit was lost during the job, so another holder may have used the resource";
    const failed = `the permit was not released: permits ended with ${released.status}`;
    console.log(`::error::${released.status === 76 ? lost : failed}`);
    process.exitCode = 1;
  }
  rmSync(dirname(file), { recursive: true, force: true });
}
