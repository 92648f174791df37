// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The page of infer::Server: a conversation with the model, without outside resources.

namespace tutti::infer {

inline constexpr char chat_page[] = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>tutti</title>
<style>
body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:0 auto;padding:1rem;background:#fff;color:#222}
#log div{white-space:pre-wrap;padding:.5rem .75rem;margin:.5rem 0;border-radius:.5rem}
#log .user{background:#e8eefc;margin-left:4rem}#log .assistant{background:#f3f3f3;margin-right:4rem}
#log .error{background:#fde8e8}
form{display:flex;gap:.5rem;position:sticky;bottom:0;background:#fff;padding:.5rem 0}
textarea{flex:1;font:inherit;padding:.5rem;height:3.5rem}button{font:inherit;padding:0 1rem}
details{color:#555}input{font:inherit}
@media(prefers-color-scheme:dark){body,form{background:#1b1b1b;color:#ddd}#log .user{background:#26314f}
#log .assistant{background:#2a2a2a}textarea,button,input{background:#2a2a2a;color:#ddd;border:1px solid #555}}
</style></head><body>
<h1>tutti</h1>
<details><summary>Settings</summary>
<label>API key <input id="key" type="password" autocomplete="off"></label>
<label>Temperature <input id="temperature" type="number" min="0" max="2" step="0.1" value="0.8"></label>
</details>
<div id="log" aria-live="polite"></div>
<form id="form"><textarea id="text" aria-label="Message" placeholder="Message" autofocus></textarea>
<button id="send">Send</button><button id="stop" type="button" hidden>Stop</button>
<button id="reset" type="button">New</button></form>
<script>
const $=id=>document.getElementById(id);let messages=[],running=null;
function show(role,text){const div=document.createElement('div');div.className=role;div.textContent=text;
  $('log').append(div);div.scrollIntoView();return div}
async function send(){
  const text=$('text').value.trim();if(!text||running)return;
  $('text').value='';show('user',text);messages.push({role:'user',content:text});
  const box=show('assistant','');let answer='';running=new AbortController();
  $('stop').hidden=false;$('send').hidden=true;
  try{
    const headers={'Content-Type':'application/json'};if($('key').value)headers.Authorization='Bearer '+$('key').value;
    const response=await fetch('/v1/chat/completions',{method:'POST',headers,signal:running.signal,
      body:JSON.stringify({messages,stream:true,temperature:Number($('temperature').value)})});
    if(!response.ok)throw new Error((await response.json()).error.message);
    const reader=response.body.getReader(),decoder=new TextDecoder();let rest='';
    for(;;){
      const{value,done}=await reader.read();if(done)break;
      rest+=decoder.decode(value,{stream:true});const events=rest.split('\n\n');rest=events.pop();
      for(const event of events){
        const data=event.replace(/^data: /,'');if(data==='[DONE]')continue;
        const document=JSON.parse(data);if(document.error)throw new Error(document.error.message);
        answer+=document.choices[0]?.delta?.content??'';box.textContent=answer;box.scrollIntoView();
      }
    }
  }catch(error){if(error.name!=='AbortError')show('error',error.message)}
  if(answer)messages.push({role:'assistant',content:answer});else{messages.pop();box.remove()}
  running=null;$('stop').hidden=true;$('send').hidden=false;$('text').focus();
}
$('form').onsubmit=e=>{e.preventDefault();send()};
$('text').onkeydown=e=>{if(e.key==='Enter'&&!e.shiftKey){e.preventDefault();send()}};
$('stop').onclick=()=>running?.abort();
$('reset').onclick=()=>{messages=[];$('log').replaceChildren()};
</script></body></html>
)page";

}  // namespace tutti::infer
