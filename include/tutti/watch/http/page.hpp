// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The page of watch::Server: a Picture with curves, without outside resources. NONCE stands for a number of each
/// answer.

namespace tutti::watch {

inline constexpr char dashboard_page[] = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>tutti</title><link rel="icon" href="data:,">
<style nonce="NONCE">
:root{--back:#fff;--text:#1d2733;--dim:#68737f;--line:#d9dee4;--panel:#f6f8fa;--train:#0b7285;--valid:#c2410c;
  --good:#15803d;--bad:#b91c1c}
@media(prefers-color-scheme:dark){:root{--back:#14181d;--text:#dde3ea;--dim:#8b96a3;--line:#2d353f;--panel:#1b2128;
--train:#4cc9f0;--valid:#fbbf24;--good:#4ade80;--bad:#f87171}}
body{font:14px/1.45 system-ui,sans-serif;background:var(--back);color:var(--text);max-width:68rem;margin:0 auto;
  padding:1rem}
h1{font-size:1.15rem;margin:0}h2{font-size:.9rem;margin:1rem 0 .3rem;color:var(--dim);font-weight:600}
header{display:flex;gap:1rem;align-items:baseline;flex-wrap:wrap}#state{font-weight:600;color:var(--good)}
#state.bad{color:var(--bad)}.dim{color:var(--dim)}
progress{width:100%;height:.6rem;accent-color:var(--train)}
#facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(9rem,1fr));gap:.5rem;margin:.7rem 0}
#facts div{background:var(--panel);border:1px solid var(--line);border-radius:.4rem;padding:.35rem .6rem}
#facts b{display:block;font-size:1.05rem;font-variant-numeric:tabular-nums}#facts span{color:var(--dim);font-size:.8rem}
svg{width:100%;height:auto;background:var(--panel);border:1px solid var(--line);border-radius:.4rem}
svg text{fill:var(--dim);font-size:11px}svg line{stroke:var(--line)}.train{stroke:var(--train)}
  .valid{stroke:var(--valid)}
svg path{fill:none;stroke-width:1.6}svg circle{fill:var(--valid)}
.key{font-weight:600}.key.train{color:var(--train)}.key.valid{color:var(--valid)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{text-align:left;color:var(--dim);font-weight:500}td,th{padding:.15rem .6rem .15rem 0;
  border-bottom:1px solid var(--line)}
td.n,th.n{text-align:right}.scroll{overflow-x:auto}
#events{background:var(--panel);border:1px solid var(--line);border-radius:.4rem;padding:.4rem .6rem;height:11rem;
  overflow-y:auto;
font-family:ui-monospace,monospace;font-size:.8rem;white-space:pre-wrap}
button{font:inherit;padding:.15rem .7rem}nav{margin-left:auto;display:flex;gap:.4rem}
</style></head><body>
<header><h1>tutti</h1><span id="name"></span><span id="state">connecting</span>
  <span id="progress-text" class="dim"></span>
<nav><button id="pause" disabled>Pause</button><button id="checkpoint" disabled>Checkpoint</button>
<button id="stop" disabled>Stop</button></nav></header>
<progress id="progress" max="1" value="0"></progress>
<div id="facts"></div>
<div class="dim" id="what"></div>
<h2>Loss <span class="key train">training</span> <span class="key valid">validation</span></h2>
<svg id="chart" viewBox="0 0 900 300" role="img" aria-label="Curves of the loss"></svg>
<h2 id="workers-title">Workers</h2><div class="scroll"><table id="workers"></table></div>
<h2>Events</h2><div id="events" aria-live="polite"></div>
<p class="dim" id="hint"></p>
<script nonce="NONCE">
const $=id=>document.getElementById(id),token=location.hash.slice(1),space='http://www.w3.org/2000/svg';
let picture=null,heard=0,missing=false;
const whole=n=>Math.round(n).toLocaleString('en'),fixed=(n,d)=>n.toFixed(d);
function bytes(n){const u=['B','kB','MB','GB','TB'];let i=0;while(n>=1000&&i<4){n/=1000;++i}return i?fixed(n,1)+' '+
  u[i]:whole(n)+' B'}
function time(s){s=Math.round(s);const two=n=>String(n).padStart(2,'0');
  return s>=3600?`${Math.floor(s/3600)}:${two(Math.floor(s/60)%60)}:${two(s%60)}`:`${Math.floor(s/60)}:${two(s%60)}`}
function element(name,text,type){const e=document.createElement(name);if(text!==undefined)e.textContent=text;
  if(type)e.className=type;return e}
function drawn(name,attributes,text){const e=document.createElementNS(space,name);
  for(const[k,v]of Object.entries(attributes))e.setAttribute(k,v);if(text!==undefined)e.textContent=text;return e}
function chart(p){
  const all=[...p.losses,...p.validations],svg=$('chart');svg.replaceChildren();
  if(!all.length){svg.append(drawn('text',{x:420,y:150},'no loss yet'));return}
  let [x0,x1]=[all[0][0],all[0][0]],[y0,y1]=[all[0][1],all[0][1]];
  for(const[x,y]of all){x0=Math.min(x0,x);x1=Math.max(x1,x);y0=Math.min(y0,y);y1=Math.max(y1,y)}
  if(x1===x0)x1=x0+1;if(y1-y0<1e-9){y0-=.5;y1+=.5}
  const X=x=>50+(x-x0)/(x1-x0)*835,Y=y=>12+(y1-y)/(y1-y0)*258;
  for(let i=0;i<5;++i){const y=y0+(y1-y0)*i/4,x=x0+(x1-x0)*i/4;
    svg.append(drawn('line',{x1:50,x2:885,y1:Y(y),y2:Y(y)}),
      drawn('text',{x:44,y:Y(y)+4,'text-anchor':'end'},fixed(y,y1>100?0:2)),
      drawn('text',{x:X(x),y:290,'text-anchor':i===0?'start':i===4?'end':'middle'},whole(x)))}
  const path=points=>points.map(([x,y],i)=>(i?'L':'M')+X(x).toFixed(1)+' '+Y(y).toFixed(1)).join('');
  svg.append(drawn('path',{class:'train',d:path(p.losses)}),drawn('path',{class:'valid',d:path(p.validations)}));
  for(const[x,y]of p.validations)svg.append(drawn('circle',{cx:X(x),cy:Y(y),r:2.5}));
}
const columns=[['name',w=>w.name],['state',w=>w.state],['step',w=>w.step<0?'':w.step+(w.steps>0?'/'+w.steps:''),1],
  ['tok/s',w=>w.tokens_per_second<0?'':whole(w.tokens_per_second),1],['out',w=>w.sent<0?'':bytes(w.sent),1],
  ['in',w=>w.received<0?'':bytes(w.received),1],['waits',w=>w.waits_ms<0?'':fixed(w.waits_ms,1)+' ms',1],
  ['cpu',w=>w.cpu<0?'':fixed(w.cpu,1),1],['memory',w=>w.memory<0?'':bytes(w.memory),1],['where',w=>w.link],
  ['device',w=>w.device],
  ['note',w=>w.note]];
function table(p){
  const shown=columns.filter(([,f])=>p.workers.some(w=>f(w)!=='')),rows=[element('tr')];
  for(const[title,,right]of shown)rows[0].append(element('th',title,right?'n':''));
  for(const w of p.workers){const row=element('tr');
    for(const[,f,right]of shown)row.append(element('td',f(w),right?'n':''));
    if(p.federated&&token&&!p.ended){const cell=element('td'),button=element('button','Drain');
      button.onclick=()=>ask('drain '+w.name);cell.append(button);row.append(cell)}
    rows.push(row)}
  $('workers').replaceChildren(...(p.workers.length?rows:[]));$('workers-title').hidden=!p.workers.length;
}
function facts(p){
  const list=[['loss',p.loss,n=>fixed(n,4)],['validation',p.validation_loss,n=>fixed(n,4)],
  ['bits per byte',p.bits_per_byte,n=>fixed(n,4)],
    ['tokens a second',p.tokens_per_second,whole],['left',p.ended?-1:p.seconds_left,time],
  ['trained',p.trained_seconds||-1,time],
    [p.federated?'seconds a round':'ms a step',p.federated&&p.ms>=0?p.ms/1000:p.ms,n=>fixed(n,1)],
  ['gradient norm',p.grad_norm,n=>fixed(n,3)],
    ['learning rate',p.lr,n=>n.toExponential(2)],['mfu',p.mfu>0?p.mfu*100:-1,n=>fixed(n,1)+' %'],
  ['waits',p.waits_ms,n=>fixed(n,1)+' ms'],
    ['inner step of '+p.inner_steps,p.inner_steps>0?p.inner_step:-1,whole],['outer steps',p.outer_step,whole],
    ['delivered, quorum '+p.quorum,p.delivered,whole],['at work',p.working,whole],
    ['processors busy',p.cpu,n=>fixed(n,1)],['in memory',p.memory,bytes],['available',p.available,bytes],
  ['out',p.sent,bytes],['in',p.received,bytes]];
  $('facts').replaceChildren(...list.filter(([,n])=>n>=0).map(([title,n,f])=>{
    const box=element('div');box.append(element('b',f(n)),element('span',title));return box}));
}
function show(p){
  picture=p;document.title=(p.ended?'':Math.floor(Math.max(p.done,0)*100)+' % ')+p.name+' - tutti';
  $('name').textContent=p.name;$('what').textContent=p.model+'; '+p.place;
  $('progress').value=Math.max(p.done,0);
  $('progress-text').textContent=(p.federated?'outer step '+whole(p.step):`step ${whole(p.step)} of ${whole(p.steps)}`)+
    (p.done>=0?`, ${fixed(p.done*100,1)} %`:'');
  facts(p);chart(p);table(p);state();
  const log=$('events'),low=log.scrollHeight-log.scrollTop-log.clientHeight<30;
  log.textContent=p.events.join('\n');if(low)log.scrollTop=log.scrollHeight;
  $('pause').textContent=p.paused?'Continue':'Pause';
  for(const id of['pause','checkpoint','stop'])$(id).disabled=!token||p.ended||p.stopping;
}
function state(){
  if(!picture)return;const p=picture,quiet=p.time>0?heard-p.time:0;
  $('state').textContent=p.ended?'ended: '+p.reason:missing?'the run does not answer':
  (p.stopping?'stopping':p.phase||'begins')+
    (p.paused&&p.phase!=='paused'?', to pause':'')+(quiet>10?', no sign for '+time(quiet):'');
  $('state').className=p.paused||p.stopping||missing||quiet>10||(p.ended&&p.reason!=='done')?'bad':'';
}
async function ask(text){
  const answer=await fetch('/command',{method:'POST',headers:{'X-Tutti-Token':token},body:text}).catch(()=>null);
  $('hint').textContent=answer&&answer.ok?'asked: '+text:'not asked: '+(answer?await answer.text():
  'the run does not answer');
}
$('pause').onclick=()=>ask(picture.paused?'continue':'pause');$('checkpoint').onclick=()=>ask('checkpoint');
$('stop').onclick=()=>{if(confirm('Stop the run after this step?'))ask('stop')};
if(!token)$('hint').textContent='To pause, keep a checkpoint or stop, open the whole address that the run has printed.';
const events=new EventSource('/events');
events.onmessage=e=>{heard=Date.now()/1000;missing=false;show(JSON.parse(e.data))};
events.onerror=()=>{missing=true;state()};
</script></body></html>
)page";

}  // namespace tutti::watch
