// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What tutti_infer.mjs promises, in Node: check_infer.mjs SITE MODEL.gguf, with the texts to expect as JSON on standard input.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [site, file] = process.argv.slice(2);
const { prompt, answers } = JSON.parse(fs.readFileSync(0, 'utf8'));
const { Infer, InferError } = await import(pathToFileURL(path.join(site, 'tutti_infer.mjs')));

function check(condition, text) {
  if (!condition) throw new Error(text);
}
/** The sentence with which f fails. */
async function refused(part, f) {
  let error = null;
  try {
    await f();
  } catch (caught) {
    error = caught;
  }
  check(error instanceof InferError && error.message.includes(part), `'${part}' was expected, not ${error}`);
  return error;
}
async function written(model, text, options) {
  let all = '';
  for await (const piece of model.generate(text, options)) {
    check(piece !== '', 'a piece is empty');
    all += piece;
  }
  return all;
}

/** A module whose `tutti_load` is one instruction: unreachable. */
function trapping() {
  const section = (id, ...bytes) => [id, bytes.length, ...bytes];
  const named = (name, kind, index) => [name.length, ...new TextEncoder().encode(name), kind, index];
  const exported = [...named('memory', 2, 0), ...named('tutti_load', 0, 1)];
  const others = ['_initialize', 'tutti_allocate', 'tutti_release', 'tutti_unload', 'tutti_output', 'tutti_output_size'];
  for (const name of others) exported.push(...named(name, 0, 0));
  return Uint8Array.from([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, ...section(1, 1, 0x60, 0, 1, 0x7f), ...section(3, 2, 0, 0),
    ...section(5, 1, 0, 1), ...section(7, others.length + 2, ...exported),
    ...section(10, 2, 5, 0, 0x41, 0x80, 0x08, 0x0b, 3, 0, 0x00, 0x0b)]);
}

const model = await Infer.open();
await refused('there is no model', () => model.begin(prompt));
await refused('cannot be read', () => model.load('/nonexistent/model.gguf'));
await refused("does not begin with 'GGUF'", () => model.load(new Uint8Array(100)));
await refused('is not a usable GGUF file', () => model.load(fs.readFileSync(file).subarray(0, 5000)));
await refused('context is 4096, and the model was made for 512', () => model.load(file, { context: 4096 }));
await refused("there is no option 'contex'", () => model.load(file, { contex: 4 }));
await refused('Use float32 or float16', () => model.load(file, { cache: 'int4' }));
check(model.facts === null, 'a model is there');

let read = 0;
const facts = await model.load(new Blob([fs.readFileSync(file)]), {}, (bytes) => { read = bytes; });
check(facts.context === 512 && facts.vocabulary === 259 && facts.chat_template === 'chatml', JSON.stringify(facts));
check(read === fs.statSync(file).size, `${read} bytes of progress`);
await model.load(file);
await refused('there is no answer', () => model.next());
for (const { options, text } of answers) {
  const found = await written(model, prompt, options);
  check(found === text, `${JSON.stringify(options)}: the module wrote ${JSON.stringify(found)}, the generator ${JSON.stringify(text)}`);
  const { stop_reason: reason, output_tokens: tokens } = model.result;
  check(reason === 'max tokens' ? tokens === 40 : reason === 'end of generation' && tokens < 40, JSON.stringify(model.result));
  check(model.next() === null, 'something follows the end');
}
check(model.begin(prompt + ' there was', { max_tokens: 0 }).reused_tokens === prompt.length, 'the beginning was computed again');
await refused('there is no option', () => model.begin(prompt, { top: 5 }));
await refused('temperature is -1, and must be', () => model.begin(prompt, { temperature: -1 }));
await refused('must be a whole number', () => model.begin(prompt, { top_k: 1.5 }));
await refused('the prompt has 600 tokens and the context 512', () => model.begin('a'.repeat(600)));
await refused('the grammar is refused', () => model.begin(prompt, { grammar: 'root ::= (' }));
await refused('a role is', () => model.begin([{ role: 'poet', content: 'x' }]));
await refused('a message must be', () => model.begin([{ role: 'user' }]));
check(/^(yes|no)$/.test(await written(model, prompt, { grammar: 'root ::= "yes" | "no"' })), 'the grammar does not hold');
check(model.begin([{ role: 'user', content: 'hi' }], { max_tokens: 1 }).prompt_tokens > 5, 'a conversation has too few tokens');
check(await written(model, 'a'.repeat(510), { temperature: 0 }) !== '' && model.result.stop_reason === 'context full',
      JSON.stringify(model.result));
const [{ options, text }] = answers;
const stop = text.match(/[ -~]+/)[0].slice(0, 3);
check(await written(model, prompt, { ...options, stop: [stop] }) === text.slice(0, text.indexOf(stop)), 'the stop text is passed over');
await model.load(file, { cache: 'float16', context: 64 });
check(model.facts.context === 64 && (await written(model, prompt, options)).length > 0, 'no text with a cache of float16');

// More than there can be: the sentence of whoever asked for it, and the module goes on.
const wide = Buffer.from(fs.readFileSync(file)), key = 'llama.context_length';
wide.writeUInt32LE(1 << 24, wide.indexOf(key) + key.length + 4);
await refused('bytes are not available', () => model.load(wide, { context: 1 << 24 }));
await model.load(file);

// A trap: the module is made anew, and the model is gone.
const broken = await Infer.open(trapping());
for (let round = 0; round < 2; ++round) {
  const lost = await refused('the module broke down', () => broken.load(new Uint8Array(8)));
  check(lost.lost && broken.facts === null, 'the model is still there');
}
// Memory is given back: a hundred models do not add up.
for (let round = 0; round < 100; ++round) await model.load(file);
check(await written(model, prompt, options) === text, 'another text than at the beginning');
console.log(`${answers.length} answers are those of the generator, and ${JSON.stringify(text)} is one`);
