// Compiles the modules without DOM and their tests into a temporary folder, and runs the tests there.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const web = dirname(dirname(fileURLToPath(import.meta.url)));
const out = mkdtempSync(join(tmpdir(), "shotline-page-"));

function node(...words) {
  return spawnSync(process.execPath, words, { cwd: web, stdio: "inherit" }).status ?? 1;
}

let status;
try {
  writeFileSync(join(out, "package.json"), '{"type": "module"}');
  status = node("node_modules/typescript/bin/tsc", "-p", "tsconfig.test.json", "--rootDir", ".", "--outDir", out);
  const tests = readdirSync(join(out, "test")).filter((name) => name.endsWith(".test.js"));
  status ||= node("--test", ...tests.map((name) => join(out, "test", name)));
} finally {
  rmSync(out, { recursive: true });
}
process.exit(status);
