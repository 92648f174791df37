// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs exceptions.wasm, which gives the number of the first promise that is not kept: check_exceptions.mjs MODULE.wasm
import fs from 'node:fs';

const refused = new Proxy({}, { get: () => () => 52 });
const { instance } = await WebAssembly.instantiate(fs.readFileSync(process.argv[2]), { wasi_snapshot_preview1: refused });
instance.exports._initialize();
for (let round = 0; round < 200; ++round) {
  const failed = instance.exports.failed();
  if (failed !== 0) throw new Error(`promise ${failed} of exceptions.cpp is not kept, in round ${round}`);
}
console.log('exceptions are thrown and caught as they are natively');
