// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Continues a text in Rust, without crates: complete.wasm [MODEL [PROMPT]]. Without a prompt, standard input is the
//! prompt. The same functions as in wasi_nn.h, behind a small type whose `Drop` gives things back.

use std::io::{Read, Write};

/// A tensor as the host reads it from this program's memory.
#[repr(C)]
struct Tensor {
    dimensions: *const u32,
    dimension_count: u32,
    kind: u32, // one byte and three of padding
    data: *const u8,
    size: u32,
}

const U8: u32 = 3;
const PROMPT: u32 = 0;
const OPTIONS: u32 = 1;
const TEXT: u32 = 0;
const USAGE: u32 = 1;
const STATUS: u32 = 2;
const TOO_LARGE: u32 = 7;
const CONTEXT_FULL: u32 = 101;

#[link(wasm_import_module = "wasi_ephemeral_nn")]
extern "C" {
    fn load_by_name(name: *const u8, length: u32, graph: *mut u32) -> u32;
    fn init_execution_context(graph: u32, context: *mut u32) -> u32;
    fn set_input(context: u32, index: u32, tensor: *const Tensor) -> u32;
    fn compute(context: u32) -> u32;
    fn get_output(context: u32, index: u32, buffer: *mut u8, capacity: u32, written: *mut u32) -> u32;
    fn finalize_execution_context(context: u32) -> u32;
    fn unload(graph: u32) -> u32;
}

fn name_of(code: u32) -> &'static str {
    match code {
        1 => "invalid argument",
        2 => "invalid encoding",
        3 => "missing memory",
        4 => "busy",
        5 => "runtime error",
        6 => "unsupported operation",
        7 => "too large",
        8 => "not found",
        100 => "end of sequence",
        101 => "context full",
        102 => "prompt too long",
        103 => "model not found",
        _ => "unknown error",
    }
}

/// A model and one context of it.
struct Generator {
    graph: u32,
    context: u32,
}

impl Generator {
    fn new(model: &str) -> Result<Generator, String> {
        let (mut graph, mut context) = (0, 0);
        // SAFETY: the host reads the name's bytes and writes one number, within the call.
        let code = unsafe { load_by_name(model.as_ptr(), model.len() as u32, &mut graph) };
        if code != 0 {
            return Err(format!("the model '{}': {} ({})", model, name_of(code), code));
        }
        // SAFETY: the host writes one number.
        let code = unsafe { init_execution_context(graph, &mut context) };
        if code != 0 {
            return Err(format!("a context: {} ({})", name_of(code), code));
        }
        Ok(Generator { graph, context })
    }

    fn set(&self, index: u32, text: &[u8]) -> Result<(), String> {
        let size = text.len() as u32;
        let tensor = Tensor { dimensions: &size, dimension_count: 1, kind: U8, data: text.as_ptr(), size };
        // SAFETY: the tensor, its dimension and its bytes live until the call has returned, and the host copies them.
        let code = unsafe { set_input(self.context, index, &tensor) };
        self.checked(code, "an input")
    }

    /// A whole output: the host says how large the buffer has to be.
    fn get(&self, index: u32) -> Result<Vec<u8>, String> {
        let mut buffer = Vec::new();
        loop {
            let mut size = 0;
            let room = buffer.len() as u32;
            // SAFETY: the host writes at most `room` bytes and one number.
            let code = unsafe { get_output(self.context, index, buffer.as_mut_ptr(), room, &mut size) };
            if code == TOO_LARGE && size > room {
                buffer.resize(size as usize, 0);
                continue;
            }
            // Not by `checked`: that reads the status, by this function.
            if code != 0 {
                return Err(format!("output {}: {} ({})", index, name_of(code), code));
            }
            buffer.truncate(size as usize);
            return Ok(buffer);
        }
    }

    /// Writes the text; whether the model's context is full now.
    fn compute(&self) -> Result<bool, String> {
        // SAFETY: no memory is handed over.
        let code = unsafe { compute(self.context) };
        if code == CONTEXT_FULL {
            return Ok(true);
        }
        self.checked(code, "compute").map(|()| false)
    }

    fn checked(&self, code: u32, what: &str) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        let status = self.get(STATUS).unwrap_or_default();
        Err(format!("{}: {} ({}); the host's status: {}", what, name_of(code), code, String::from_utf8_lossy(&status)))
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // SAFETY: no memory is handed over. The program ends here: what the host answers is of no use.
        unsafe {
            finalize_execution_context(self.context);
            unload(self.graph);
        }
    }
}

fn run(model: &str, prompt: &[u8]) -> Result<(), String> {
    let generator = Generator::new(model)?;
    generator.set(OPTIONS, b"{\"temperature\": 0, \"max_tokens\": 50}")?;
    generator.set(PROMPT, prompt)?;
    let full = generator.compute()?;
    let mut out = std::io::stdout();
    let written = out.write_all(&generator.get(TEXT)?).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    written.map_err(|error| format!("the text cannot be written: {}", error))?;
    eprintln!("{}{}", String::from_utf8_lossy(&generator.get(USAGE)?), if full { ", the context is full" } else { "" });
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.len() > 2 {
        eprintln!("complete: at most a model and a prompt: complete.wasm [MODEL [PROMPT]]");
        std::process::exit(2);
    }
    let model = arguments.first().map_or("default", String::as_str);
    let mut prompt = Vec::new();
    match arguments.get(1) {
        Some(text) => prompt.extend_from_slice(text.as_bytes()),
        None => {
            if let Err(error) = std::io::stdin().read_to_end(&mut prompt) {
                eprintln!("complete: standard input cannot be read: {}", error);
                std::process::exit(1);
            }
        }
    }
    if prompt.is_empty() {
        eprintln!("complete: the prompt is empty. Give one as the second argument or on standard input");
        std::process::exit(2);
    }
    if let Err(sentence) = run(model, &prompt) {
        eprintln!("complete: {}", sentence);
        std::process::exit(1);
    }
}
