// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Language models in pages and in Node, by tutti_infer.wasm, which lies beside this file. Nothing else is fetched.
//
//   const model = await Infer.open();                      // in this thread: for Node, and for workers of one's own
//   await model.load(file, { context: 1024 });             // a File, a Blob, bytes, or in Node a path; GGUF
//   for await (const piece of model.generate('Once upon a time', { max_tokens: 100, temperature: 0 })) show(piece);
//   model.result;                                          // { stop_reason, prompt_tokens, output_tokens, ... }
//
// A page takes `InferWorker` in its place, which has the same functions and computes in a worker: the page stays alive.
//
// Every failure is an InferError with a sentence. After one, the model is there as before, but for a failed load (there is
// none then) and for an error whose `lost` is true: the module broke down and was made anew; load the model again.

export class InferError extends Error {
  constructor(message, lost = false) {
    super(message);
    this.name = 'InferError';
    this.lost = lost;
  }
}

const here = import.meta.url;
const inNode = typeof process === 'object' && Boolean(process.versions?.node);
const encoder = new TextEncoder(), decoder = new TextDecoder('utf-8', { ignoreBOM: true });

async function compiled(source) {
  if (source instanceof WebAssembly.Module) return source;
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return WebAssembly.compile(source);
  const url = new URL(source ?? 'tutti_infer.wasm', here);
  if (inNode && url.protocol === 'file:') {
    const { readFile } = await import('node:fs/promises');
    return WebAssembly.compile(await readFile(url));
  }
  const response = await fetch(url);
  if (!response.ok) throw new InferError(`${url} could not be fetched: ${response.status} ${response.statusText}`);
  return WebAssembly.compile(await response.arrayBuffer());
}

/** The functions of WASI that the module's library asks for: a clock, and neither variables, files nor other threads. */
function system(memory) {
  const view = () => new DataView(memory().buffer);
  return {
    environ_sizes_get: (count, bytes) => (view().setUint32(count, 0, true), view().setUint32(bytes, 0, true), 0),
    environ_get: () => 0,
    clock_time_get: (clock, precision, result) => {
      const now = clock === 0 ? Date.now() : performance.now();
      return (view().setBigUint64(result, BigInt(Math.round(now * 1e6)), true), 0);
    },
    sched_yield: () => 0,
    poll_oneoff: () => 52,  // not there
    fd_close: () => 8,      // no such file
    fd_seek: () => 8,
    fd_write: (file, parts, count, written) => {  // what the library says before it ends by a trap
      let text = '', bytes = 0;
      for (let i = 0; i < count; ++i) {
        const at = view().getUint32(parts + 8 * i, true), size = view().getUint32(parts + 8 * i + 4, true);
        text += decoder.decode(new Uint8Array(memory().buffer, at, size));
        bytes += size;
      }
      if (text.trim()) console.error(text);
      return (view().setUint32(written, bytes, true), 0);
    },
    proc_exit: () => { throw new WebAssembly.RuntimeError('the module ended itself'); },
  };
}

/** { size, name, pieces: iterable of Uint8Array } of what people have as a model. */
async function source(model, name) {
  if (typeof model === 'string' || model instanceof URL) {
    if (!inNode) throw new InferError('a page cannot read paths. Give a File, a Blob or bytes');
    const { open } = await import('node:fs/promises');
    let file;
    try {
      file = await open(model);
      const { size } = await file.stat();
      return { size, name: name ?? String(model), pieces: file.createReadStream({ highWaterMark: 1 << 20 }) };
    } catch (error) {
      await file?.close();
      throw new InferError(`'${model}' cannot be read: ${error.message}`);
    }
  }
  if (model instanceof ArrayBuffer) model = new Uint8Array(model);
  if (ArrayBuffer.isView(model)) {
    const bytes = new Uint8Array(model.buffer, model.byteOffset, model.byteLength);
    return { size: bytes.length, name: name ?? 'model.gguf', pieces: [bytes] };
  }
  if (typeof Blob === 'function' && model instanceof Blob) {
    const parts = async function* () {
      const reader = model.stream().getReader();
      for (let part = await reader.read(); !part.done; part = await reader.read()) yield part.value;
    };
    return { size: model.size, name: name ?? model.name ?? 'model.gguf', pieces: parts() };
  }
  throw new InferError('a model is a File, a Blob, bytes, or in Node a path');
}

/** A model in this thread. Its calls block it while they compute. */
export class Infer {
  #module; #exports; #begun = false;
  facts = null;   // of the model: { context, vocabulary, chat_template }; null: there is none
  result = null;  // of the last answer

  /** `wasm`: where the module is, its bytes, or it compiled; beside this file where nothing is said. */
  static async open(wasm) {
    const model = new Infer();
    model.#module = await compiled(wasm);
    model.#start();
    return model;
  }

  /** Takes a model in the place of the one before. `options`: context, cache, and name for messages.
      `progress(bytes, all)` is called while it is read. */
  async load(model, options = {}, progress = undefined) {
    const { name, ...rest } = options;
    this.unload();
    const from = await source(model, name);
    const start = this.#exports.tutti_allocate(from.size);
    if (start === 0) {
      from.pieces.destroy?.();
      throw new InferError(`there is no memory for the ${from.size} bytes of ${from.name}. Use a smaller model`);
    }
    let at = 0;
    const owner = this.#exports;
    try {
      for await (const piece of from.pieces) {
        if (at + piece.length > from.size) throw new InferError(`${from.name} grew while it was read`);
        new Uint8Array(owner.memory.buffer, start + at, piece.length).set(piece);
        at += piece.length;
        progress?.(at, from.size);
      }
      if (at !== from.size) throw new InferError(`${from.name} ended after ${at} of ${from.size} bytes`);
    } catch (error) {
      if (owner === this.#exports) owner.tutti_release(start);
      throw error instanceof InferError ? error : new InferError(`${from.name} cannot be read: ${error.message}`);
    }
    this.#call('tutti_load', start, from.size, ...this.#put(from.name), ...this.#put(JSON.stringify(rest)));
    this.facts = JSON.parse(this.#output());
    return this.facts;
  }
  /** Gives the memory of the model back. */
  unload() {
    this.#begun = false;
    this.facts = null;
    this.#call('tutti_unload');
  }

  /** Reads `prompt`, a text or a list of messages { role, content }. Returns { prompt_tokens, reused_tokens, ... }. */
  begin(prompt, options = {}) {
    this.#begun = false;
    this.result = null;
    const settings = typeof prompt === 'string' ? options : { ...options, messages: prompt };
    this.#call('tutti_begin', ...this.#put(typeof prompt === 'string' ? prompt : ''), ...this.#put(JSON.stringify(settings)));
    this.#begun = true;
    return JSON.parse(this.#output());
  }
  /** The next piece of the answer, whole characters; null at its end: `result` says why. */
  next() {
    if (this.#begun === false && this.result !== null) return null;
    const code = this.#call('tutti_next');
    if (code === 1) return this.#output();
    this.#begun = false;
    this.result = JSON.parse(this.#output());
    return null;
  }
  /** The pieces of an answer. Between two of them others in this thread have their turn. */
  async *generate(prompt, options = {}) {
    this.begin(prompt, options);
    for (let piece = this.next(); piece !== null; piece = this.next()) {
      yield piece;
      await new Promise((resolve) => setTimeout(resolve, 0));
    }
  }

  #start() {
    const instance = new WebAssembly.Instance(this.#module, { wasi_snapshot_preview1: system(() => this.#exports.memory) });
    this.#exports = instance.exports;
    this.#exports._initialize();
  }
  #put(text) {
    const bytes = encoder.encode(text);
    const at = this.#exports.tutti_allocate(bytes.length);
    if (at === 0) throw new InferError(`there is no memory for a text of ${bytes.length} bytes`);
    new Uint8Array(this.#exports.memory.buffer, at, bytes.length).set(bytes);
    return [at, bytes.length];
  }
  #output() {
    const { memory, tutti_output, tutti_output_size } = this.#exports;
    return decoder.decode(new Uint8Array(memory.buffer, tutti_output(), tutti_output_size()));
  }
  #call(name, ...values) {
    let code;
    try {
      code = this.#exports[name](...values.map((value) => value | 0));
    } catch (error) {
      // The stack of a trap was not unwound: what the module holds cannot be trusted any more.
      this.#begun = false;
      this.facts = null;
      this.#start();
      throw new InferError(`the module broke down (${error.message}). It was made anew: load the model again`, true);
    }
    if (code < 0) {
      this.#begun = false;
      throw new InferError(this.#output());
    }
    return code;
  }
}

/** The functions of Infer for pages: it computes in a worker, which runs this same file. */
export class InferWorker {
  #worker; #waiting = new Map(); #number = 0; #progress = null;
  facts = null;
  result = null;

  static async open(wasm) {
    const model = new InferWorker();
    model.#worker = new Worker(here, { type: 'module', name: 'tutti-infer' });
    model.#worker.onmessage = ({ data }) => model.#take(data);
    model.#worker.onerror = (event) => {
      for (const { fail } of model.#waiting.values()) fail(new InferError(`the worker failed: ${event.message}`, true));
      model.#waiting.clear();
    };
    await model.#ask('open', wasm instanceof URL ? wasm.href : wasm);
    return model;
  }
  async load(model, options = {}, progress = undefined) {
    this.facts = null;
    this.#progress = progress;
    return this.facts = await this.#ask('load', model, options);
  }
  async unload() {
    this.facts = null;
    await this.#ask('unload');
  }
  async begin(prompt, options = {}) {
    this.result = null;
    return this.#ask('begin', prompt, options);
  }
  async next() {
    const { piece, result } = await this.#ask('next');
    if (piece === null) this.result = result;
    return piece;
  }
  async *generate(prompt, options = {}) {
    await this.begin(prompt, options);
    for (let piece = await this.next(); piece !== null; piece = await this.next()) yield piece;
  }
  /** Ends the worker, also while it computes. */
  close() {
    this.#worker.terminate();
  }

  #ask(what, ...values) {
    return new Promise((done, fail) => {
      this.#waiting.set(++this.#number, { done, fail });
      this.#worker.postMessage({ number: this.#number, what, values });
    });
  }
  #take({ number, value, error, progress }) {
    if (progress) return this.#progress?.(...progress);
    const { done, fail } = this.#waiting.get(number);
    this.#waiting.delete(number);
    if (error === undefined) return done(value);
    if (error.lost) this.facts = null;
    return fail(new InferError(error.message, error.lost));
  }
}

// As a worker: messages in order, one at a time.
if (typeof WorkerGlobalScope !== 'undefined' && self instanceof WorkerGlobalScope && self.name === 'tutti-infer') {
  let model = null, before = Promise.resolve();
  const answers = {
    open: async (wasm) => { model = await Infer.open(wasm); },
    load: (file, options) => {
      let shown = 0;
      return model.load(file, options, (bytes, all) => {
        if (bytes < all && bytes - shown < all / 100) return;
        shown = bytes;
        self.postMessage({ progress: [bytes, all] });
      });
    },
    unload: () => model.unload(),
    begin: (prompt, options) => model.begin(prompt, options),
    next: () => ({ piece: model.next(), result: model.result }),
  };
  self.onmessage = ({ data: { number, what, values } }) => {
    before = before.then(async () => {
      try {
        self.postMessage({ number, value: await answers[what](...values) });
      } catch (error) {
        self.postMessage({ number, error: { message: error.message, lost: Boolean(error.lost) } });
      }
    });
  };
}
