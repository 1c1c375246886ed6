// Loads the native half of the package: a library beside `dist`, one for each platform.
//
// The code looks for the library from its own place. A bundler copies this file elsewhere without the
// library, so a failure first asks whether the directory is the package at all.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type * as Native from './native.js';

const BUILD =
  'with Rust 1.88 and a C compiler, `npm install && npm run build && npm pack` in bindings/node of the source of permits builds one';

/** The native half, for this platform. */
export const native = loaded();

function loaded(): typeof Native {
  const directory = join(__dirname, '../..');
  const platform = `${process.platform}-${process.arch}`;
  try {
    return require(join(directory, `permits.${platform}.node`)) as typeof Native;
  } catch (cause) {
    throw new Error(`the package permits cannot run: ${problem(directory, platform, cause as NodeJS.ErrnoException)}`, { cause });
  }
}

/** Says what is wrong, and what to do. */
function problem(directory: string, platform: string, cause: NodeJS.ErrnoException): string {
  if (!isPackage(directory)) {
    const remedy = 'mark it external, such as by `--external:permits` of esbuild, and install it beside the bundle';
    return `its library is not in ${directory}, which is not this package. Was it bundled? Then ${remedy} (${cause.message})`;
  }
  if (cause.code === 'ERR_DLOPEN_DISABLED') {
    return `Node may not load its library: ${cause.message} Start Node without --no-addons, or with --allow-addons`;
  }
  const libraries = librariesOf(directory);
  if (libraries === undefined || libraries.includes(platform)) {
    return `its library for ${platform} cannot be loaded: ${cause.message}. Install the package again, or build it on this system: ${BUILD}`;
  }
  return `it has no library for ${platform}, only for ${libraries.join(', ') || 'no platform'}: ${BUILD}`;
}

/** Is the directory this package? It counts as this package if it cannot be read for another reason than absence. */
function isPackage(directory: string): boolean {
  try {
    return JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8')).name === 'permits';
  } catch (error) {
    return !['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '');
  }
}

/** The platforms for which the directory has a library; `undefined` if it cannot be read. */
function librariesOf(directory: string): string[] | undefined {
  try {
    return readdirSync(directory).flatMap((file) => /^permits\.(.*)\.node$/.exec(file)?.[1] ?? []);
  } catch {
    return undefined;
  }
}
