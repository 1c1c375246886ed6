// Builds the package in this directory: `node build.mjs [LIBRARY]`. Without the path of a library, cargo
// builds it. The build makes the types of its native half, `lib/native.d.ts`, too.
import { execFileSync } from 'node:child_process';
import { copyFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { generateTypeDef } from '@napi-rs/cli';

const here = dirname(fileURLToPath(import.meta.url));
const run = (program, ...args) => execFileSync(program, args, { cwd: here, stdio: ['ignore', 'pipe', 'inherit'] });

const NAMES = { linux: 'libpermits_node.so', darwin: 'libpermits_node.dylib' };
const HEADER = '// Made by napi-rs from src/: `npm run build` writes it.\n\n';

function built() {
  const metadata = JSON.parse(run('cargo', 'metadata', '--no-deps', '--format-version=1'));
  run('cargo', 'build', '--release', '--locked', '--package', 'permits-node');
  return [join(metadata.target_directory, 'release', NAMES[process.platform]), join(metadata.workspace_root, 'target/napi')];
}

const [library, typeDefDir] = process.argv[2] ? process.argv.slice(2) : built();
copyFileSync(library, join(here, `permits.${process.platform}-${process.arch}.node`));
const { dts } = await generateTypeDef({ typeDefDir, dtsHeader: HEADER, cwd: here });
writeFileSync(join(here, 'lib/native.d.ts'), dts);
const typescript = dirname(createRequire(import.meta.url).resolve('typescript/package.json'));
execFileSync(process.execPath, [join(typescript, 'bin/tsc')], { cwd: here, stdio: 'inherit' });
copyFileSync(join(here, 'lib/native.d.ts'), join(here, 'dist/lib/native.d.ts'));
