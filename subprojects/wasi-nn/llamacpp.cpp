// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Exports of libwasi_nn_llamacpp.so; what they do is in tutti/wasi_nn.
#pragma GCC visibility push(default)
#include <tutti_wasi_nn.h>
#pragma GCC visibility pop

#include <tutti/wasi_nn/native_library.hpp>
#include <tutti/wasi_nn/wamr.hpp>

#include <dlfcn.h>

namespace wamr = tutti::wasi_nn::wamr;
namespace native = tutti::wasi_nn::native_library;

static_assert(sizeof(tutti_wasi_nn_bytes) == sizeof(wamr::Bytes) &&
              sizeof(tutti_wasi_nn_tensor) == sizeof(wamr::Tensor));
static_assert(offsetof(tutti_wasi_nn_tensor, data) == offsetof(wamr::Tensor, data));

namespace {

/// A function of the host, null where it has none of that name.
template <class F>
F host(char const* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_DEFAULT, name));
}
wamr::Bytes* of(tutti_wasi_nn_bytes* bytes) { return reinterpret_cast<wamr::Bytes*>(bytes); }

}  // namespace

extern "C" {

int init_backend(void** context) {
  return wamr::init(context,
                    host<void (*)(std::uint32_t*, std::uint32_t*, std::uint32_t*)>("wasm_runtime_get_version"));
}
int deinit_backend(void* context) { return wamr::deinit(context); }
int load(void* context, tutti_wasi_nn_parts* parts, int encoding, int target, uint32_t* graph) {
  return wamr::load(context, reinterpret_cast<wamr::Parts const*>(parts), static_cast<uint32_t>(encoding),
                    static_cast<uint32_t>(target), graph);
}
int load_by_name(void* context, char const* name, uint32_t size, uint32_t* graph) {
  return wamr::load_by_name(context, name, size, nullptr, 0, graph);
}
int load_by_name_with_config(void* context, char const* name, uint32_t size, char const* config, uint32_t config_size,
                             uint32_t* graph) {
  return wamr::load_by_name(context, name, size, config, config_size, graph);
}
int init_execution_context(void* context, uint32_t graph, uint32_t* execution) {
  return wamr::init_execution_context(context, graph, execution);
}
int set_input(void* context, uint32_t execution, uint32_t index, tutti_wasi_nn_tensor* tensor) {
  return wamr::set_input(context, execution, index, reinterpret_cast<wamr::Tensor const*>(tensor));
}
int compute(void* context, uint32_t execution) { return wamr::compute(context, execution); }
int get_output(void* context, uint32_t execution, uint32_t index, tutti_wasi_nn_bytes* buffer, uint32_t* size) {
  return wamr::get_output(context, execution, index, of(buffer), size);
}

int tutti_wasi_nn_compute_single(void* context, uint32_t execution) { return wamr::compute_single(context, execution); }
int tutti_wasi_nn_get_output_single(void* context, uint32_t execution, uint32_t index, tutti_wasi_nn_bytes* buffer,
                                    uint32_t* size) {
  return wamr::get_output_single(context, execution, index, of(buffer), size);
}
int tutti_wasi_nn_fini_single(void* context, uint32_t execution) { return wamr::fini_single(context, execution); }
int tutti_wasi_nn_unload(void* context, uint32_t graph) { return wamr::unload(context, graph); }
int tutti_wasi_nn_finalize_execution_context(void* context, uint32_t execution) {
  return wamr::finalize_execution_context(context, execution);
}

int init_native_lib() {
  native::Runtime runtime;
  runtime.instance_of = host<decltype(runtime.instance_of)>("wasm_runtime_get_module_inst");
  runtime.holds = host<decltype(runtime.holds)>("wasm_runtime_validate_app_addr");
  runtime.native = host<decltype(runtime.native)>("wasm_runtime_addr_app_to_native");
  runtime.clear_exception = host<decltype(runtime.clear_exception)>("wasm_runtime_clear_exception");
  runtime.get_context = host<decltype(runtime.get_context)>("wasm_runtime_get_context");
  runtime.create_key = host<decltype(runtime.create_key)>("wasm_runtime_create_context_key");
  runtime.set_context = host<decltype(runtime.set_context)>("wasm_runtime_set_context_spread");
  runtime.destroy_key = host<decltype(runtime.destroy_key)>("wasm_runtime_destroy_context_key");
  return native::open(runtime);
}
void deinit_native_lib() { native::Door::get().close(); }
uint32_t get_native_lib(char** module, void** symbols) { return native::table(module, symbols); }

}  // extern "C"
