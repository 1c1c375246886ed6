// Makes a module from each TypeScript block of the documents, in the directory of the second argument. The
// info words of a block say how it is run (CONTRIBUTING.md, "Blocks of code"). A block with `copies=` becomes
// a function of a client and of the functions that the words name. A block with `run=FILE` is named after
// that file.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const [root, directory] = process.argv.slice(2);
mkdirSync(directory, { recursive: true });

function below(path, depth) {
  return readdirSync(join(root, path), { withFileTypes: true }).flatMap((entry) => {
    const inner = `${path}/${entry.name}`;
    if (entry.isDirectory()) return depth > 0 ? below(inner, depth - 1) : [];
    return entry.name.endsWith('.md') ? [inner] : [];
  });
}

/** A block that runs by itself, with a client and a semaphore if it makes none. */
function program(block) {
  const lacks = (name) => new RegExp(`\\b${name}\\.`).test(block) && !new RegExp(`const ${name}\\b`).test(block);
  const opening = [];
  if (lacks('client') || lacks('exports')) {
    opening.push(`import * as permits from 'permits';`, `const client = await permits.connect('redis://127.0.0.1/');`);
  }
  if (lacks('exports')) {
    opening.push(`const exports = client.semaphore('exports', 4);`);
  }
  return `${opening.join('\n')}\n${block}`.replace(/'redis:\/\/127\.0\.0\.1\/'/g, 'process.env.TEST_URL!');
}

function copies(block, heading, [number, ...words]) {
  const functions = words.map((word) => word.split(/[=/]/)).map(([name, runs, most]) => [name, [+runs, +most]]);
  return `import type { Client } from 'permits';
    export const heading = ${JSON.stringify(heading)};
    export const copies = ${number.replace('copies=', '')};
    export const functions: Record<string, [runs: number, most: number]> = ${JSON.stringify(Object.fromEntries(functions))};
    export async function block(client: Client, { ${[...functions.map(([name]) => name), 'nextJob']} }: any): Promise<void> {
      void nextJob;\n${block}}`;
}

for (const page of ['README.md', ...below('docs', 9), ...below('bindings', 1)].sort()) {
  let heading = '';
  const text = readFileSync(join(root, page), 'utf8');
  for (const match of text.matchAll(/^#+ (.*)$|^```(\S+) ?(.*)\n([^]*?)^```/gm)) {
    const [, line, language, info, block] = match;
    heading = line ?? heading;
    const words = info?.split(' ') ?? [];
    const write = (kind, module) => writeFileSync(join(directory, kind), module);
    const place = `${page.replace(/\W+/g, '-')}-${text.slice(0, match.index).split('\n').length}`;
    const file = /^run=(.*)/.exec(words[0])?.[1];
    if (language === 'js' && file) write(`${place}.test.mjs`, block);
    if (language !== 'ts' || info.startsWith('not run:')) continue;
    if (words[0].startsWith('copies=')) write(`copies-${place}.mts`, copies(block, heading, words));
    else write(file ? `run-${file}-${place}.mts` : `alone-${place}.mts`, program(block));
  }
}
