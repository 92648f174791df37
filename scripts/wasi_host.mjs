#!/usr/bin/env -S node --no-warnings
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
const usage = `Runs a WebAssembly program that uses wasi_ephemeral_nn, with Node and a library of the kind that
wasm-micro-runtime loads (libwasi_nn_llamacpp.so).

    node --no-warnings wasi_host.mjs --addon ADDON --library LIBRARY [options] GUEST.wasm [arguments of the guest]

      --addon ADDON         wasi_nn_host.node, which is built from examples/wasi/host_addon.c
      --library LIBRARY     the library that has the models
      --env NAME=VALUE      a setting of the library, as an environment variable of this process; may be repeated
      --guest-env NAME=VALUE  a variable that the guest sees; may be repeated
      --dir HOST[::GUEST]   a folder of the guest, under the name GUEST (HOST); may be repeated. node:wasi knows no
                            folders to read alone: the guest may write there

The guest has this process' standard input, output and error; its exit code is this program's. A guest that traps ends
with 134, wrong options of this program with 2.
`;

import fs from 'node:fs';
import path from 'node:path';
import { createRequire } from 'node:module';
import v8 from 'node:v8';
import { WASI } from 'node:wasi';

// node:wasi allocates in its functions, which can collect garbage; V8 does not allow that where it calls them the fast
// way, and Node 20 then ends by a signal in one run of four.
v8.setFlagsFromString('--no-turbo-fast-api-calls');

// `process` is the global one: to import it opens its standard output, and a pipe then refuses the guest's bytes whenever
// it is full.

// Number of arguments of each import; every one is an i32, and so is the result.
const imports = { load: 5, load_by_name: 3, load_by_name_with_config: 5, init_execution_context: 2, set_input: 3,
                  compute: 1, get_output: 5, compute_single: 1, get_output_single: 5, fini_single: 1, unload: 1,
                  finalize_execution_context: 1 };

function fail(sentence, code = 1) {
  fs.writeSync(2, `wasi_host: ${sentence}\n`);
  process.exit(code);
}

function parse(given) {
  const single = { '--addon': null, '--library': null };
  const lists = { '--env': [], '--guest-env': [], '--dir': [] };
  const rest = [...given];
  while (rest.length > 0 && rest[0].startsWith('-')) {
    let [flag] = rest[0].split('=', 1);
    if (flag === '--help' || flag === '-h') {
      fs.writeSync(1, usage);
      process.exit(0);
    }
    if (!(flag in single) && !(flag in lists)) fail(`there is no option ${flag}. The options: --help`, 2);
    let value = rest.shift();
    if (value !== flag) value = value.slice(flag.length + 1);
    else if (rest.length === 0) fail(`${flag} needs a value`, 2);
    else value = rest.shift();
    if (flag in single) single[flag] = value;
    else if (flag.endsWith('env') && !value.includes('=')) fail(`${flag} ${value}: not of the form NAME=VALUE`, 2);
    else lists[flag].push(value);
  }
  for (const flag in single) if (single[flag] === null) fail(`${flag} is missing. See --help`, 2);
  if (rest.length === 0) fail('the guest, a .wasm file, is missing. See --help', 2);
  const variables = (pairs) => Object.fromEntries(pairs.map((pair) => {
    const at = pair.indexOf('=');
    return [pair.slice(0, at), pair.slice(at + 1)];
  }));
  return { addon: single['--addon'], library: single['--library'], folders: lists['--dir'], guest: rest[0],
           rest: rest.slice(1), settings: variables(lists['--env']), guestVariables: variables(lists['--guest-env']) };
}

function folderTable(folders) {
  const table = {};
  for (const folder of folders) {
    const at = folder.indexOf('::');
    const host = at < 0 ? folder : folder.slice(0, at);
    if (!fs.statSync(host, { throwIfNoEntry: false })?.isDirectory()) fail(`--dir ${folder}: ${host} is no folder`);
    table[at < 0 ? folder : folder.slice(at + 2)] = host;
  }
  return table;
}

function start(options, backend) {
  let module;
  try {
    module = new WebAssembly.Module(fs.readFileSync(options.guest));
  } catch (error) {
    return fail(`${options.guest} is no WebAssembly module: ${error.message}`);
  }
  const wasi = new WASI({ version: 'preview1', args: [options.guest, ...options.rest], env: options.guestVariables,
                          preopens: folderTable(options.folders), returnOnExit: true });
  let memory = null;
  const functions = {};
  // The buffer is looked up in each call: a memory that grew has a new one.
  for (const name in imports) functions[name] = (...values) => backend[name](memory.buffer, ...values);
  let instance;
  try {
    instance = new WebAssembly.Instance(module, { ...wasi.getImportObject(), wasi_ephemeral_nn: functions });
  } catch (error) {
    return fail(`${options.guest}: ${error.message}`);
  }
  memory = instance.exports.memory;
  if (typeof instance.exports._start !== 'function' || !(memory?.buffer instanceof ArrayBuffer))
    return fail(`${options.guest} is no program: it does not export _start and a memory of its own`);
  try {
    return wasi.start(instance);
  } catch (error) {
    if (error instanceof WebAssembly.RuntimeError) return fail(`${options.guest} trapped: ${error.message}`, 134);
    throw error;
  }
}

const options = parse(process.argv.slice(2));
for (const file of [options.addon, options.library, options.guest])
  if (!fs.statSync(file, { throwIfNoEntry: false })?.isFile()) fail(`${file}: no such file`);
Object.assign(process.env, options.settings);
let backend;
try {
  backend = createRequire(import.meta.url)(path.resolve(options.addon)).connect(path.resolve(options.library));
} catch (error) {
  fail(`--addon ${options.addon} with --library ${options.library}: ${error.message}`);
}
process.on('exit', () => backend.close());
process.exitCode = start(options, backend);
