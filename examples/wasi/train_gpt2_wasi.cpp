// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Text from a model that ./tutti train made, in a WebAssembly runtime: the host has the model, this program has the
// flags. It calls only what every host of wasi_ephemeral_nn has, no streaming, and links no stream of the standard
// library: that keeps it small.

#include "guest.h"

#include <unistd.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

namespace {

constexpr char program[] = "train_gpt2_wasi";
constexpr std::string_view usage =
    "usage: train_gpt2_wasi.wasm [flags]\n"
    "  --model NAME       the host's name of the model (default)\n"
    "  --prompt TEXT      text to continue; without it, each line of standard input is continued\n"
    "  --max-tokens N     most tokens to write (200)\n"
    "  --temperature T    0 takes the most likely token (the host's default)\n"
    "  --top-k K          draw from the K most likely tokens, 0: from all (the host's default)\n"
    "  --seed S           the same seed gives the same text\n";

struct Run {
  std::string model = "default";
  std::optional<std::string> prompt;
  std::string max_tokens = "200", temperature, top_k, seed;

  /// The options as JSON; values were checked, so they stand as they were typed.
  std::string options() const {
    std::string json = "{\"max_tokens\": " + max_tokens;
    if (!temperature.empty()) json += ", \"temperature\": " + temperature;
    if (!top_k.empty()) json += ", \"top_k\": " + top_k;
    if (!seed.empty()) json += ", \"seed\": " + seed;
    return json + "}";
  }
};

void complain(std::string const& sentence) {
  std::string const line = std::string(program) + ": " + sentence + "\n";
  std::fputs(line.c_str(), stderr);
}

/// A whole number as JSON takes it, without sign and zeros in front, or nothing.
std::optional<std::string> whole_number(std::string_view text, std::uint64_t smallest, std::uint64_t largest) {
  if (text.empty()) return {};
  std::uint64_t value = 0;
  for (char const c : text) {
    if (c < '0' || c > '9') return {};
    auto const digit = static_cast<std::uint64_t>(c - '0');
    if (value > (largest - digit) / 10) return {};
    value = value * 10 + digit;
  }
  if (value < smallest) return {};
  std::size_t const first = text.find_first_not_of('0');
  return std::string(first == std::string_view::npos ? "0" : text.substr(first));
}

/// A number from 0 on as JSON takes it: digits, then perhaps a point with digits. Or nothing.
std::optional<std::string> decimal(std::string_view text) {
  std::size_t const point = text.find('.');
  std::string_view const whole = text.substr(0, point);
  std::string_view const part = point == std::string_view::npos ? std::string_view("0") : text.substr(point + 1);
  auto const digits = [](std::string_view of) {
    return !of.empty() && of.size() < 10 && of.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (!digits(whole.empty() ? "0" : whole) || !digits(part)) return {};
  std::size_t const first = whole.find_first_not_of('0');
  return std::string(first == std::string_view::npos ? "0" : whole.substr(first)) + "." + std::string(part);
}

/// The flags, or the exit code.
std::optional<int> parse(int argc, char** argv, Run& run) {
  for (int index = 1; index < argc; ++index) {
    std::string_view flag = argv[index];
    if (flag == "--help") {
      std::fwrite(usage.data(), 1, usage.size(), stdout);
      return 0;
    }
    std::optional<std::string_view> value;
    if (std::size_t const equals = flag.find('='); flag.starts_with("--") && equals != std::string_view::npos) {
      value = flag.substr(equals + 1);
      flag = flag.substr(0, equals);
    }
    bool const known = flag == "--model" || flag == "--prompt" || flag == "--max-tokens" || flag == "--temperature" ||
                       flag == "--top-k" || flag == "--seed";
    if (!known) {
      complain("there is no flag '" + std::string(flag) + "'. The flags: --help");
      return 2;
    }
    if (!value) {
      if (index + 1 == argc) {
        complain(std::string(flag) + " needs a value");
        return 2;
      }
      value = argv[++index];
    }
    std::optional<std::string> taken;
    char const* what = "a whole number from 0 to 9223372036854775807";
    if (flag == "--model" || flag == "--prompt") {
      what = "a text that is not empty";
      if (!value->empty()) taken = std::string(*value);
      if (flag == "--prompt") run.prompt = taken;
      else run.model = taken.value_or("");
    } else if (flag == "--max-tokens") {
      what = "a whole number from 1 to 16777216";
      run.max_tokens = (taken = whole_number(*value, 1, 16777216)).value_or("");
    } else if (flag == "--temperature") {
      what = "a number from 0 on";
      run.temperature = (taken = decimal(*value)).value_or("");
    } else if (flag == "--top-k") {
      what = "a whole number from 0 to 2147483647";
      run.top_k = (taken = whole_number(*value, 0, 2147483647)).value_or("");
    } else {
      run.seed = (taken = whole_number(*value, 0, 9223372036854775807)).value_or("");
    }
    if (!taken) {
      complain(std::string(flag) + ": '" + std::string(*value) + "' is not " + what);
      return 2;
    }
  }
  return {};
}

/// Prints a prompt and what the model writes after it. The exit code.
int complete(wasi_nn_context context, std::string_view prompt, guest_bytes& text) {
  std::uint32_t code = guest_set_text(context, WASI_NN_INPUT_PROMPT, prompt.data(), std::uint32_t(prompt.size()));
  if (code) return guest_failed(program, "the prompt", code, &context);
  code = wasi_nn_compute(context);
  // A full context is one way for a text to end: what was written is there.
  if (code && code != WASI_NN_CONTEXT_FULL) return guest_failed(program, "compute", code, &context);
  code = guest_output(context, WASI_NN_OUTPUT_TEXT, &text);
  if (code) return guest_failed(program, "the text", code, &context);
  std::fwrite(prompt.data(), 1, prompt.size(), stdout);
  std::fwrite(text.data, 1, text.size, stdout);
  std::fputs("\n", stdout);
  if (std::fflush(stdout) == 0) return 0;
  complain("the text cannot be written");
  return 1;
}

int generate(Run const& run) {
  wasi_nn_graph graph = 0;
  wasi_nn_context context = 0;
  std::uint32_t code = wasi_nn_load_by_name(run.model.data(), std::uint32_t(run.model.size()), &graph);
  if (code) return guest_failed(program, ("the model '" + run.model + "'").c_str(), code, nullptr);
  code = wasi_nn_init_execution_context(graph, &context);
  if (code) return guest_failed(program, "a context", code, nullptr);
  std::string const options = run.options();
  code = guest_set_text(context, WASI_NN_INPUT_OPTIONS, options.data(), std::uint32_t(options.size()));
  if (code) return guest_failed(program, "the options", code, &context);

  guest_bytes text{};
  int result = 0;
  if (run.prompt) {
    result = complete(context, *run.prompt, text);
  } else {
    bool const asks = isatty(0) != 0;
    char* line = nullptr;
    std::size_t room = 0;
    while (result == 0) {
      if (asks) std::fputs("> ", stderr);
      ssize_t const read = getline(&line, &room, stdin);
      if (read < 0) break;
      std::string_view prompt(line, static_cast<std::size_t>(read));
      while (prompt.ends_with('\n') || prompt.ends_with('\r')) prompt.remove_suffix(1);
      if (!prompt.empty()) result = complete(context, prompt, text);
    }
    std::free(line);
  }
  std::free(text.data);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  Run run;
  if (auto const code = parse(argc, argv, run)) return *code;
  return generate(run);
}
