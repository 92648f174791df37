// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What index.html does: loads the file that was chosen, writes what follows the prompt, as it comes.
import { InferWorker } from './tutti_infer.mjs';

const at = (id) => document.getElementById(id);
let model = null, stopped = false, busy = false;

function say(text, wrong = false) {
  at('status').textContent = text;
  at('status').className = wrong ? 'wrong' : '';
}
function enable() {
  at('go').disabled = busy || model === null || model.facts === null;
  at('stop').disabled = !busy || model?.facts === null;
  at('file').disabled = busy;
}
/** f(), of which the page waits for the end. */
async function alone(f) {
  busy = true;
  enable();
  try {
    await f();
  } catch (error) {
    say(error.message, true);
  }
  busy = false;
  enable();
}

at('file').onchange = () => alone(async () => {
  const file = at('file').files[0];
  if (file === undefined) return;
  say('Starting');
  model ??= await InferWorker.open();
  const facts = await model.load(file, {}, (bytes, all) => say(`${file.name}: ${Math.round(100 * bytes / all)} %`));
  at('chat').disabled = facts.chat_template === null;
  at('chat').checked = facts.chat_template !== null;
  say(`${file.name} is loaded: ${facts.vocabulary} tokens, ${facts.context} of them in a context.`);
});

if (at('file').files.length > 0) at('file').onchange();  // it was chosen before this ran

at('stop').onclick = () => { stopped = true; };

at('go').onclick = () => alone(async () => {
  stopped = false;
  at('text').textContent = '';
  say('Reading the prompt');
  const prompt = at('prompt').value;
  const options = { max_tokens: Number(at('tokens').value), temperature: Number(at('temperature').value),
                    seed: Number(at('seed').value) };
  for await (const piece of model.generate(at('chat').checked ? [{ role: 'user', content: prompt }] : prompt, options)) {
    say('Writing');
    at('text').append(piece);
    if (stopped) return say('Stopped.');
  }
  const { stop_reason: reason, output_tokens: tokens, seconds } = model.result;
  say(`Ended: ${reason}; ${tokens} tokens` + (seconds > 0 ? `, ${(tokens / seconds).toFixed(1)} a second.` : '.'));
});
