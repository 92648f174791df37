// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A StableHLO module as a graph: what JAX exports of a model is differentiated, optimized and trained here.
///
/// Functions of the module are written out where they are called; loops that count by integers known beforehand become
/// loops of the graph, what they slice and fill by their counter included. docs/guides/stablehlo.md lists the
/// operations. Whatever else the text holds is refused by name and line, where the entry function uses it.
/// Determinism  the graph is a pure function of the text
/// Source       https://openxla.org/stablehlo/spec, and what jax.jit(f).lower(...).as_text() and jax.export print

#include <tutti/graph/canonical.hpp>
#include <tutti/graph/stablehlo/importer.hpp>
#include <tutti/graph/stablehlo/module.hpp>
#include <tutti/graph/stablehlo/parse.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace tutti::graph {

struct ImportOptions {
  std::string file = "module.mlir";  ///< named in messages
  std::string function = "";         ///< the one that is the program; empty: `main`, or the only public one
};

/// A module that is read, to be called in as many graphs as one likes.
class StablehloProgram {
 public:
  /// Errors  format, for text that is none; unavailable, for types and forms that are not supported. With file and line
  template <class = void>
  explicit StablehloProgram(std::string_view text, ImportOptions const& options = {})
      : module_(stablehlo::text::parse(text, options.file)) {
    std::size_t chosen = module_.functions.size(), several = 0;
    for (std::size_t i = 0; i < module_.functions.size(); ++i) {
      stablehlo::text::Function const& function = module_.functions[i];
      if (options.function.empty() ? function.is_private : function.name != options.function) continue;
      if (chosen == module_.functions.size() || function.name == "main") chosen = i;
      ++several;
    }
    if (chosen == module_.functions.size())
      throw Error(
          ErrorKind::format, "from_stablehlo",
          concat(options.file, ": ", options.function.empty() ? "no function is public" : "there is no function @",
                 options.function));
    if (several > 1 && module_.functions[chosen].name != "main")
      throw Error(
          ErrorKind::configuration, "from_stablehlo",
          concat(options.file, ": several functions are public, and none is @main. Say ImportOptions::function"));
    entry_ = chosen;
    stablehlo::text::Function const& entry = module_.functions[entry_];
    for (std::size_t i = 0; i < entry.body.types.size(); ++i)
      arguments_.push_back(
          {entry.argument_names[i], StablehloRole::input, entry.body.types[i].dtype, entry.body.types[i].shape});
    for (auto const& type : entry.results) results_.push_back({"", StablehloRole::output, type.dtype, type.shape});
  }

  /// In their order. Names are those that the text gives by locations, as of debug_info: "params['wte']"; or empty.
  List<StablehloPort> const& arguments() const noexcept { return arguments_; }
  List<StablehloPort> const& results() const noexcept { return results_; }
  std::string const& file() const noexcept { return module_.file; }
  /// Of the entry function.
  int line() const noexcept { return module_.functions[entry_].line; }

  /// The results of the entry function for these arguments.
  /// Errors  unavailable, for what is not supported, and format, for what does not hold together: by name and line;
  ///         shape and dtype, for arguments of other types
  template <class = void>
  List<Var> operator()(Builder& builder, List<Var> const& arguments) const {
    if (arguments.size() != arguments_.size())
      throw Error(ErrorKind::invalid_argument, "from_stablehlo",
                  concat(file(), " takes ", arguments_.size(), " arguments, not ", arguments.size()));
    stablehlo::Items items;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      stablehlo::text::TensorType const given{arguments[i].dtype(), arguments[i].shape()},
          wanted{arguments_[i].dtype, arguments_[i].shape};
      if (!(given == wanted))
        throw Error(given.dtype == wanted.dtype ? ErrorKind::shape : ErrorKind::dtype, "from_stablehlo",
                    concat(file(), " takes ", to_string(wanted), " as argument ", i, ", not ", to_string(given)));
      items.push_back({wanted, arguments[i]});
    }
    stablehlo::Importer importer(builder, module_);
    stablehlo::Items const results = importer.call(module_.functions[entry_], std::move(items));
    List<Var> found;
    for (std::size_t i = 0; i < results.size(); ++i) found.push_back(importer.var(results[i]));
    builder.copy_source({}, 0);
    return found;
  }

 private:
  stablehlo::text::Module module_;
  std::size_t entry_ = 0;
  List<StablehloPort> arguments_, results_;
};

/// The graph of a module: inputs are its arguments, by name or "argument_0", outputs its results, "result_0" and so on.
/// Errors  as of StablehloProgram
inline Graph from_stablehlo(std::string_view text, ImportOptions const& options = {}) {
  StablehloProgram const program(text, options);
  Builder builder;
  List<Var> arguments;
  for (std::size_t i = 0; i < program.arguments().size(); ++i) {
    StablehloPort const& port = program.arguments()[i];
    bool unique = !port.name.empty();
    for (std::size_t k = 0; k < program.arguments().size(); ++k)
      unique = unique && (k == i || program.arguments()[k].name != port.name);
    arguments.push_back(builder.input(unique ? port.name : concat("argument_", i), port.dtype, port.shape));
  }
  List<Var> const results = program(builder, arguments);
  for (std::size_t i = 0; i < results.size(); ++i) builder.output(concat("result_", i), results[i]);
  return canonical(builder.graph());
}

}  // namespace tutti::graph
