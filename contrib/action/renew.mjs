// Renews the permit of a handle, three times in a lease, until the file is removed, the permit is lost, or
// the process of the runner that runs the job has ended.
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";

const [program, file, interval, runner] = process.argv.slice(2);
const handle = readFileSync(file, "utf8");
let next = performance.now() + Number(interval);

function renew() {
  const running = spawn(program, ["renew", "-"], { stdio: ["pipe", "inherit", "inherit"] });
  running.stdin.on("error", () => {});
  running.stdin.end(handle);
  running.on("error", () => running.emit("close", 71));
  running.once("close", (code) => {
    if (code === 76) process.exit(1);
    // A renewal that failed is tried some more times before the lease ends.
    next = performance.now() + (code === 0 ? Number(interval) : Math.min(Number(interval), 2000));
    setTimeout(step, 200);
  });
}

// In a container, which ends with the job, the runner has no process.
function isOver() {
  if (!existsSync(file)) return true;
  try {
    if (Number(runner) > 1) process.kill(Number(runner), 0);
  } catch (error) {
    if (error.code !== "ESRCH") return false;
    console.log(`the process ${runner} of the runner has ended: no more renewals`);
    return true;
  }
  return false;
}

function step() {
  if (isOver()) process.exit(0);
  if (performance.now() >= next) renew();
  else setTimeout(step, 200);
}

step();
