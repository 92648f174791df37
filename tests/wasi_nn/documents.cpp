// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/wasi_nn/document.hpp> <tutti/wasi_nn/document_values.hpp> <tutti/wasi_nn/settings.hpp>
// Covers: <tutti/wasi_nn/failure.hpp> <tutti/wasi_nn/document_keys.hpp>
#include "wasi_nn/support.hpp"

#include <tutti/exec/processors.hpp>
#include <tutti/wasi_nn/document.hpp>
#include <tutti/wasi_nn/registry.hpp>
#include <tutti/wasi_nn/rules.hpp>

#include <filesystem>
#include <fstream>
#include <string>

using namespace tutti;
using namespace tutti::wasi_nn;
using tutti::test::ScratchFolder;
using tutti::test::Variable;

namespace {

Settings settings_of(std::string const& text, Level level = Level::model) {
  Settings settings;
  Document::parse(text, level).apply(settings);
  settle(settings);
  return settings;
}
/// Code and text of what the call throws.
template <class F>
std::string failure_of(F&& f) {
  try {
    f();
  } catch (Failure const& failure) {
    return std::to_string(witx_number(failure.code())) + ": " + failure.what();
  }
  return "nothing was thrown";
}
std::string refused(std::string const& text, Level level = Level::model) {
  return failure_of([&] { settings_of(text, level); });
}

}  // namespace

TEST_CASE("Documents of hosts that know the session interface load as they are") {
  char const* const documents[] = {
      R"({"max_sessions":25,"idle_timeout_ms":150000,"auto_cleanup":false,"max_concurrent":2,"queue_size":10})",
      R"({"backend":{"max_sessions":100,"idle_timeout_ms":300000,"auto_cleanup":true,"max_concurrent":8,
          "queue_size":50},
          "memory_policy":{"context_shifting":true,"cache_strategy":"lru","max_cache_tokens":10000},
          "logging":{"level":"info","enable_debug":false},"performance":{"batch_processing":true,"batch_size":512}})",
      R"({"n_gpu_layers":48,"ctx_size":1024,"n_predict":256,"batch_size":256,"threads":4,"temp":0.8,"top_p":0.9,
          "repeat_penalty":1.05})",
      R"({"model":{"n_gpu_layers":98,"ctx_size":2048,"n_predict":512,"batch_size":512,"threads":8},
          "sampling":{"temp":0.7,"top_p":0.95,"top_k":40,"min_p":0.05,"typical_p":1.0,"repeat_penalty":1.10,
          "presence_penalty":0.0,"frequency_penalty":0.0,"penalty_last_n":64,"mirostat":0,"mirostat_tau":5.0,
          "mirostat_eta":0.1,"seed":-1},
          "stopping":{"stop":["\n\n","User:","Assistant:"],"max_tokens":512,"max_time_ms":30000,"ignore_eos":false},
          "memory":{"context_shifting":true,"cache_prompt":true,"max_cache_tokens":10000}})",
      R"({"backend":{"max_concurrent":4,"queue_size":10,"default_task_timeout_ms":60000,
          "priority_scheduling_enabled":true,"fair_scheduling_enabled":false,"queue_warning_threshold":8,
          "queue_reject_threshold":10},"model":{"n_gpu_layers":98,"ctx_size":4096,"threads":16}})",
      R"({"model":{"path":"模型文件.gguf","name":"测试模型","description":"🤖 AI测试 🚀"}})",
      R"({"model":{"n_gpu_layers":98,"ctx_size":1024,"n_predict":80},"sampling":{"temp":0.9,"top_p":0.8,"top_k":30,
          "min_p":0.1,"typical_p":0.95,"repeat_penalty":1.15,"presence_penalty":0.1,"frequency_penalty":0.1,
          "penalty_last_n":32,"mirostat":1,"mirostat_tau":4.0,"mirostat_eta":0.2,"seed":12345},
          "stopping":{"stop":[".","!","?"],"max_tokens":80,"ignore_eos":true}})",
      R"({"max_sessions":3,"idle_timeout_ms":100,"auto_cleanup_enabled":true,"max_concurrent":2})",
      R"({"logging":{"level":"none"},"backend":{"max_sessions":50,"max_concurrent":2,"auto_cleanup_sessions":true}})",
      R"({"sampling":{"dynatemp":{"range":0.1,"exponent":1.2}},
          "memory_management":{"cache_policy":{"enable_prompt_cache":true,"retention_ms":300000}}})",
      R"({"stopping":{"stop_sequences":["\n\n","<|end|>","</response>","The end",".\n"],"max_tokens":200,
          "grammar_triggers":{"enabled":true,"patterns":["^\\s*$","[.!?]\\s*$","\\b(END|STOP|DONE)\\b"]},
          "timeout_config":{"enabled":true,"max_inference_time_ms":30000,"adaptive_timeout":true,"min_timeout_ms":5000,
          "timeout_multiplier":1.5},
          "semantic_stopping":{"enabled":true,"completion_confidence_threshold":0.85,"repetition_detection":true,
          "max_repetition_count":3},
          "token_filters":{"forbidden_tokens":["<unk>","<mask>"],"required_tokens":[".","!","?"],
          "pattern_based_triggers":["^[A-Z][a-z]+\\.$"]}}})",
      R"({"model":{"n_ctx":4096,"n_batch":512,"n_gpu_layers":40,"threads":16,"use_mmap":true,"use_mlock":true,
          "numa":"distribute"},
          "memory":{"cache_strategy":"smart","max_cache_tokens":500000,"memory_pressure_threshold":0.85,
          "max_memory_mb":32768,"n_keep_tokens":128,"n_discard_tokens":256,"enable_partial_cache_deletion":true,
          "enable_token_cache_reuse":true,"cache_deletion_strategy":"lru"},
          "sampling":{"temperature":0.7,"grammar":"","grammar_lazy":false,"n_probs":0,"min_keep":1,"dry_base":1.75,
          "dry_sequence_breakers":["\n",":","\"","*"]},
          "runtime":{"temperature":0.9,"top_k":40,"stop":["Human:","</s>"]},
          "performance":{"batch_processing":true,"batch_size":1024},"logit_bias":[[198,-1.0],[628,0.5],[50256,-100]]})",
  };
  for (char const* const text : documents) {
    CAPTURE(text);
    REQUIRE_NOTHROW(settings_of(text, Level::backend));
  }
  Settings const s = settings_of(documents[11]);
  REQUIRE(s.sampling.temperature == 0.9);  // runtime wins
  REQUIRE(s.n_batch == 512);
  REQUIRE(s.batch_tokens == 1024);
  REQUIRE(s.stop == std::vector<std::string>{"Human:", "</s>"});
  REQUIRE(s.logit_bias[2].second == -INFINITY);
  Settings const t = settings_of(documents[10]);
  REQUIRE(t.stop.size() == 5);
  REQUIRE(t.stop_patterns.size() == 4);
  REQUIRE((t.semantic_stopping && t.repetition_detection && t.adaptive_timeout));
  REQUIRE(settings_of(documents[9]).sampling.dynatemp_exponent == 1.2);
  REQUIRE(settings_of(documents[9]).retention_ms == 300000);
}

TEST_CASE("What WasmEdge's guests say is understood, and what cannot be is said") {
  Settings const s = settings_of(R"({"enable-log":true,"n-predict":7,"reverse-prompt":"User:","ctx-size":256,
      "batch-size":64,"ubatch-size":64,"n-keep":4,"n-parallel":2,"temp":0.5,"top-k":5,"typ-p":0.9,
      "last-n-penalty":10,"dry-multipier":0.8,"dry-last-n-penalty":12,"cache-type-k":"f16","cache-type-v":"f16",
      "ctx-shift":true,"flash-attn":"auto","no-kv-offload":true,"main-gpu":0,"split-mode":"none","use-mmap":false,
      "threads-batch":-1,"pooling-type":"mean","embd-normalize":2,"stream-stdout":false,"image":"",
      "json-schema":"{}"})");
  REQUIRE(s.log_level == LogLevel::info);
  REQUIRE(s.max_tokens == 7);
  REQUIRE(s.stop == std::vector<std::string>{"User:"});
  REQUIRE((s.n_ctx == 256 && s.n_batch == 64 && s.n_keep_tokens == 4 && s.max_concurrent == 2));
  REQUIRE((s.sampling.repeat_last_n == 10 && s.sampling.dry_penalty_last_n == 12 && s.sampling.dry_multiplier == 0.8));
  REQUIRE(s.cache_type_k == CacheType::f16);
  REQUIRE(s.context_shifting);
  REQUIRE_FALSE(s.use_mmap);
  REQUIRE(
      refused(R"({"stream-stdout":true})") ==
      "1: 'stream_stdout' cannot be true here: nothing is written to standard output: read pieces with compute_single");
  REQUIRE(refused(R"({"mmproj":"clip.gguf"})").find("text alone") != std::string::npos);
}

TEST_CASE("What says only how the same answer is computed is taken with a note; two bounds of one thing are one") {
  Settings const s =
      settings_of(R"({"flash-attn":false,"threads-batch":2,"main-gpu":1,"split-mode":"row","cpu-moe":true,
      "tensor-split":"3,1","numa":false,"yarn-beta-fast":32,"batch-size":512,"ubatch-size":128,"n-keep":-1,
      "model":{"n_predict":512},"stopping":{"max_tokens":200},"logging":{"level":"WARNING"}})");
  REQUIRE(s.n_batch == 128);
  REQUIRE(s.max_tokens == 200);
  REQUIRE(s.n_keep_tokens == -1);
  REQUIRE(s.log_level == LogLevel::warn);
  REQUIRE(s.numa == Numa::disabled);
  REQUIRE(s.fitted.at("threads_batch") ==
          "threads_batch is 2: the same threads serve prompts and answers: set threads");
  for (char const* const name : {"flash_attn", "main_gpu", "split_mode", "cpu_moe", "tensor_split"})
    REQUIRE(s.fitted.count(name) == 1);
  REQUIRE(s.fitted.count("yarn_beta_fast") == 0);
  REQUIRE(settings_of(R"({"n_predict":-1,"stopping":{"max_tokens":200}})").max_tokens == 200);
  REQUIRE(settings_of(R"({"log_level":"Trace"})").log_level == LogLevel::debug);
  REQUIRE(refused(R"({"log_level":"loud"})").find("must be") != std::string::npos);
  Settings const r = settings_of(R"({"rope-freq-base":5000,"rope-freq-scale":0.5,"rope-scaling-type":2,
      "yarn-ext-factor":0.5,"yarn-attn-factor":-1,"yarn-beta-fast":0,"yarn-beta-slow":2,"yarn-orig-ctx":128,
      "pooling-type":"none","embd-normalize":-1})");
  REQUIRE((r.rope_freq_base == 5000 && r.rope_freq_scale == 0.5 && r.rope_scaling_type == RopeScaling::yarn));
  REQUIRE((r.yarn_ext_factor == 0.5 && r.yarn_attn_factor == 1 && r.yarn_beta_fast == 32 && r.yarn_beta_slow == 2));
  REQUIRE((r.yarn_orig_ctx == 128 && r.pooling_type == infer::Pooling::last && r.embd_normalize == -1));
  REQUIRE(settings_of(R"({"rope-scaling-type":-1,"rope-freq-base":-1})").rope_freq_base == 0);
  REQUIRE(refused(R"({"rope-scaling-type":7})").find("must be") != std::string::npos);
}

TEST_CASE("A setting of the model may be said again where it says what is in force; the log's words are notes then") {
  Settings model = settings_of(R"({"n_ctx":512,"batch_size":128,"n_gpu_layers":0,"use_mmap":false,"name":"a"})");
  auto const again = [&](char const* text) {
    return failure_of([&] {
      Settings s = model;
      Document::parse(text, Level::session, false, {&model}).apply(s);
      if (s.fitted.count("enable_log") != 0) throw Failure(Code::busy, s.fitted.at("enable_log"));
    });
  };
  REQUIRE(again(R"({"ctx-size":512,"batch-size":128,"n-gpu-layers":0,"use-mmap":false,"name":"a","temp":0.1})") ==
          "nothing was thrown");
  REQUIRE(again(R"({"ctx-size":513})") == "1: 'ctx_size' is a setting of the model and cannot be changed by a session");
  REQUIRE(again(R"({"use-mmap":true})").find("cannot be changed") != std::string::npos);
  REQUIRE(again(R"({"enable-log":true,"enable-debug-log":true})").find("the log is the host's") != std::string::npos);
  REQUIRE(again(R"({"log_level":"debug"})").find("cannot be changed") != std::string::npos);
}

TEST_CASE("Keys and values that cannot be are refused by name, with what may be") {
  REQUIRE(refused(R"({"temperatur":1})") == "1: the key 'temperatur' is unknown. Did you mean 'temperature'?");
  REQUIRE(refused(R"({"sampling":{"topk":1}})") == "1: the key 'sampling.topk' is unknown. Did you mean 'top_k'?");
  REQUIRE(refused(R"({"qqqqqqqqqqqq":1})") == "1: the key 'qqqqqqqqqqqq' is unknown");
  REQUIRE(refused(R"({"sampling":{"threads":2}})") ==
          "1: 'threads' does not belong into 'sampling'. Say it at the top of the document or in 'model'");
  REQUIRE(refused(R"({"top_p":7})") == "1: 'top_p' is 7 and must be a number, between 0 and 1");
  REQUIRE(refused(R"({"n_ctx":1.5})") == "1: 'n_ctx' is 1.5 and must be a whole number, between 0 and 16777216");
  REQUIRE(refused(R"({"n_ctx":-5})").find("must be") != std::string::npos);
  REQUIRE(refused(R"({"use_mmap":1})") == "1: 'use_mmap' is 1 and must be true or false");
  REQUIRE(refused(R"({"cache_strategy":"mru"})") == "1: 'cache_strategy' is \"mru\" and must be lru, fifo or smart");
  REQUIRE(refused(R"({"temp":1,"temperature":2})") == "1: 'temperature' is 2, and 'temp' says 1. Say it once");
  REQUIRE(refused(R"({"stop":5})") == "1: 'stop' is 5 and must be a text or a list of texts");
  REQUIRE(refused(R"({"samplers":["top_q"]})").find("penalties, dry") != std::string::npos);
  REQUIRE(refused(R"({"n_ctx":512})", Level::session) ==
          "1: 'n_ctx' is a setting of the model and cannot be changed by a session");
  REQUIRE(refused(R"({"session":"a"})", Level::run).find("cannot be changed by a run") != std::string::npos);
  REQUIRE(refused("[1]") == "1: the document must be a JSON object");
  REQUIRE(refused("{\"a\":") == "1: the document cannot be read: its JSON is damaged");
  REQUIRE(refused("{\"top_k\":1,\"top_k\":2}").find("twice") != std::string::npos);
  REQUIRE(refused(std::string(70000, ' ')).substr(0, 2) == "7:");
  std::string deep(40, '[');
  REQUIRE(refused("{\"stop\":" + deep) == "1: the document is nested more than 32 levels deep");
  REQUIRE_NOTHROW(settings_of(""));
  REQUIRE_NOTHROW(settings_of("  \n\t "));
}

TEST_CASE("Rules between settings hold") {
  REQUIRE(refused(R"({"queue_size":5,"queue_reject_threshold":6})") ==
          "1: queue_reject_threshold is 6 and queue_size 5: it must not be larger");
  REQUIRE(refused(R"({"queue_warning_threshold":6,"queue_reject_threshold":5})").find("must not be larger") !=
          std::string::npos);
  REQUIRE(refused(R"({"cache_type_k":"f16","cache_type_v":"q8_0"})").find("the same") != std::string::npos);
  REQUIRE(refused(R"({"required_tokens":["a","b"],"forbidden_tokens":["b"]})").find("'b' is in required_tokens") !=
          std::string::npos);
  Settings const keys = settings_of(R"({"cache_type_k":"q8_0"})"), values = settings_of(R"({"cache_type_v":"bf16"})");
  REQUIRE((keys.cache_type_k == CacheType::q8_0 && keys.cache_type_v == CacheType::q8_0));
  REQUIRE(keys.fitted.at("cache_type_v") == "cache_type_v is q8_0, as the other of the two");
  REQUIRE(values.cache_type_k == CacheType::bf16);
  REQUIRE(refused(R"({"grammar":"root ::= \"a\"","json_schema":{}})").find("exclude") != std::string::npos);
  REQUIRE(refused(R"({"grammar":"root ::= \"a\"","grammar_lazy":true})").find("grammar_triggers") != std::string::npos);
  Settings const s = settings_of(R"({"queue_size":10})");
  REQUIRE((s.queue_reject_threshold == 10 && s.queue_warning_threshold == 8));
  REQUIRE(settings_of(R"({"dry_base":0.5})").sampling.dry_base == 1.75);
  REQUIRE(settings_of(R"({"top_k":-1})").sampling.top_k == 0);
  REQUIRE(settings_of(R"({"n_ctx":"auto","threads":"auto"})").n_ctx == 0);
}

TEST_CASE("Later levels win, and minus one keeps what was, where a run's document means it so") {
  Settings s;
  Document::parse(R"({"temp":0.1,"top_k":3,"seed":5})", Level::backend).apply(s);
  Document::parse(R"({"temp":0.2,"stop":["a"]})", Level::model).apply(s);
  Document::parse(R"({"temp":0.3})", Level::session).apply(s);
  Document::parse(R"({"temp":-1,"top_k":-1,"seed":-1,"max_tokens":9,"stop":["b"]})", Level::run, true).apply(s);
  REQUIRE(s.sampling.temperature == 0.3);
  REQUIRE(s.sampling.top_k == 3);
  REQUIRE(s.seed == 5);
  REQUIRE(s.max_tokens == 9);
  REQUIRE(s.stop == std::vector<std::string>{"b"});
  // Of sampling and stopping alone, and what might have meant -1 is told.
  Document::parse(R"({"mirostat":2,"priority":3,"presence_penalty":0.5})", Level::session).apply(s);
  Document::parse(R"({"mirostat":-1,"priority":-1,"presence_penalty":-1})", Level::run, true).apply(s);
  REQUIRE(s.sampling.mirostat.text() == "2");
  REQUIRE(s.sampling.presence_penalty == 0.5);
  REQUIRE(s.priority == -1);
  REQUIRE(s.fitted.at("presence_penalty") == "presence_penalty is -1: as it was");
  REQUIRE_THROWS_AS(Document::parse(R"({"mirostat":-1})", Level::run), Failure);
}

TEST_CASE("Whole numbers are taken to the last digit, and no more threads than there are processors") {
  REQUIRE(settings_of(R"({"seed":9007199254740993})").seed == 9007199254740993);
  REQUIRE(settings_of(R"({"seed":9223372036854775807})").seed == INT64_MAX);
  REQUIRE(settings_of(R"({"seed":1e3})").seed == 1000);
  REQUIRE(refused(R"({"seed":9223372036854775808})").find("must be a whole number") != std::string::npos);
  REQUIRE(refused(R"({"seed":-2})").find("must be a whole number") != std::string::npos);
  REQUIRE(refused(R"({"seed":0.5})").find("must be a whole number") != std::string::npos);
  Settings s = settings_of(R"({"threads":1000})");
  settle(s);
  REQUIRE(s.threads == exec::available_processors());
  REQUIRE(s.fitted.at("threads").starts_with("threads is 1000: "));
}

TEST_CASE("Every key of the table is read from a document under all of its names") {
  Settings defaults;
  int names = 0;
  for_each_setting(defaults, [&]<class T, class May>(Row const& row, T const& value, May const&, char const*) {
    wasi_nn::detail::any_name(row, [&](std::string_view name) {
      wasi_nn::detail::Json json;
      if constexpr (std::is_same_v<T, bool> || std::is_arithmetic_v<T>) json = value;
      else if constexpr (requires { value.text(); }) json = value.text();
      else if constexpr (std::is_same_v<T, std::string>) json = value;
      else json = wasi_nn::detail::Json::array();
      if (row.name == std::string_view("dry_sequence_breakers")) json = {"a"};
      auto const dot = name.find('.');
      wasi_nn::detail::Json document;
      if (dot == std::string_view::npos) document[std::string(name)] = json;
      else if (std::string const outer(name.substr(0, dot)), inner(name.substr(dot + 1)); true)
        document[outer][inner] = json;
      CAPTURE(document.dump());
      REQUIRE_NOTHROW(Document::parse(document.dump(), Level::backend));
      ++names;
      return false;
    });
  });
  CHECK(names > 130);
}

TEST_CASE("Guests name registered models, and files in allowed folders alone") {
  ScratchFolder folder;
  std::filesystem::create_directories(folder / "models/sub");
  std::filesystem::create_directories(folder / "models-secret");
  for (char const* const name : {"models/a.gguf", "models/sub/b.gguf", "models-secret/c.gguf"})
    std::ofstream(folder / name) << "x";
  std::filesystem::create_symlink(folder / "models-secret/c.gguf", folder / "models/link.gguf");
  {
    Variable const models("TUTTI_WASI_NN_MODELS", "one=/x/1.gguf;two=" + (folder / "models/a.gguf") + ";");
    Registry const registry = Registry::from_environment();
    REQUIRE(registry.size() == 2);
    REQUIRE(registry.find("two").path == folder / "models/a.gguf");
    REQUIRE(failure_of([&] { registry.find("one"); }).substr(0, 4) == "103:");  // it is not there
    REQUIRE(failure_of([&] { registry.find("/x/1.gguf"); }).substr(0, 4) == "103:");
    REQUIRE(failure_of([&] { registry.log_file("/tmp/log"); }).find("log_folders") != std::string::npos);
  }
  std::ofstream(folder / "registry.json")
      << R"({"models": {"m": ")" << (folder / "models/a.gguf") << R"(", "n": {"path": ")"
      << (folder / "models/sub/b.gguf") << R"(", "settings": {"n_ctx": 64}}}, "folders": [")" << (folder / "models")
      << R"("], "log_folders": [")" << folder.path() << R"("], "bytes": false, "settings": {"max_concurrent": 1}})";
  Variable const models("TUTTI_WASI_NN_MODELS", folder / "registry.json");
  Registry const registry = Registry::from_environment();
  REQUIRE(registry.find("n").settings == R"({"n_ctx":64})");
  REQUIRE_FALSE(registry.takes_bytes());
  REQUIRE(registry.settings() == R"({"max_concurrent":1})");
  REQUIRE(registry.find("sub/b.gguf").path == std::filesystem::canonical(folder / "models/sub/b.gguf").string());
  REQUIRE(registry.find(folder / "models/a.gguf").path ==
          std::filesystem::canonical(folder / "models/a.gguf").string());
  for (std::string const& name :
       {folder / "models-secret/c.gguf", std::string("../models-secret/c.gguf"), std::string("link.gguf"),
        std::string("/etc/passwd"), std::string("sub/../../registry.json"), std::string("a.gguf\0b", 8),
        std::string(".")}) {
    CAPTURE(name);
    REQUIRE(failure_of([&] { registry.find(name); }).substr(0, 4) == "103:");
  }
  REQUIRE(registry.log_file(folder / "x.log") == std::filesystem::canonical(folder.path()).string() + "/x.log");

  std::ofstream(folder / "bad.json") << R"({"modles": {}})";
  Variable const bad("TUTTI_WASI_NN_MODELS", folder / "bad.json");
  REQUIRE(failure_of([] { Registry::from_environment(); }).find("'modles' is unknown") != std::string::npos);
  Variable const none("TUTTI_WASI_NN_MODELS", "/no/such/file");
  REQUIRE(failure_of([] { Registry::from_environment(); }).find("cannot be read") != std::string::npos);
  Variable const odd("TUTTI_WASI_NN_MODELS", "a=1;b");
  REQUIRE(failure_of([] { Registry::from_environment(); }).find("name=path") != std::string::npos);
}

TEST_CASE("Codes have the numbers of each interface") {
  REQUIRE((witx_number(Code::busy) == 4 && witx_number(Code::too_large) == 7 && witx_number(Code::not_found) == 8));
  REQUIRE((wit_number(Code::timeout) == 3 && wit_number(Code::too_large) == 6 && wit_number(Code::security) == 8));
  REQUIRE((witx_number(Code::end_of_sequence) == 100 && wit_number(Code::model_not_found) == 103));
}

TEST_CASE("A limit of layers on the GPU bounds what is asked for, and turns none into none") {
  using wasi_nn::Document;
  using wasi_nn::Level;
  auto const limited = [](std::string const& asked) {
    wasi_nn::Settings settings;
    Document::parse(asked, Level::model).apply(settings);
    Document::parse(R"({"n_gpu_layers": 5})", Level::model).limit(settings);
    return settings.n_gpu_layers;
  };
  CHECK(limited("") == 5);  // as many as fit, at most these
  CHECK(limited(R"({"n_gpu_layers": "auto"})") == 5);
  CHECK(limited(R"({"n_gpu_layers": 0})") == 0);
  CHECK(limited(R"({"n_gpu_layers": 3})") == 3);
  CHECK_THROWS_AS(limited(R"({"n_gpu_layers": 6})"), wasi_nn::Failure);
}
