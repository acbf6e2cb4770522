// Plain rounding and scale search of a checkpoint straight from its mapped files, format by format: GB of
// bfloat16 weights a second of one core, in processor time (user, and with the kernel's share), for the
// whole way: codes, packing, hash, file, reading back and comparing. The audit of what was written is the
// check of the answer.
//
//   stream_bench FOLDER [LAYERS] [JOB...]
//
// Writes a checkpoint of LAYERS decoder layers (width 2048, 122 MB each) into FOLDER, and removes it. JOB is
// SCHEME:METHOD[:EXPORT], for example int4:rtn:gptq. The first lines are floors: what copying, writing and
// reading the same bytes cost on this machine, without any arithmetic.
#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/isa.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "engine/numeric/bf16.h"
#include "graphsurgeon/checkpoint/safetensors_write.h"
#include "graphsurgeon/open_checkpoint.h"
#include "recipes/checkpoint/export_checkpoint.h"
#include "recipes/quant_spec.h"

namespace {

using namespace pare;

constexpr std::int64_t kWidth = 2048, kInner = 8192, kVocabulary = 256;

struct Cost {
  double user = 0, system = 0;
};

Cost spent() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return {seconds(usage.ru_utime), seconds(usage.ru_stime)};
}

// The least of three runs: other work on the machine only adds.
Cost cost_of(const std::function<void()>& run) {
  Cost least{1e9, 1e9};
  for (int i = 0; i < 3; ++i) {
    const Cost before = spent();
    run();
    const Cost after = spent();
    const Cost cost{after.user - before.user, after.system - before.system};
    if (cost.user + cost.system < least.user + least.system) least = cost;
  }
  return least;
}

void show(const std::string& name, std::int64_t bytes, const Cost& cost, bool correct) {
  const double gb = static_cast<double>(bytes) * 1e-9;
  fmt::print(
      "{{\"name\":\"{}\",\"isa\":\"{}\",\"gb\":{:.3f},\"user_s\":{:.3f},\"system_s\":{:.3f},"
      "\"gb_per_s_user\":{:.2f},\"gb_per_s_core\":{:.2f},\"correct\":{}}}\n",
      name, pare::name(isa()), gb, cost.user, cost.system, gb / std::max(cost.user, 1e-9),
      gb / std::max(cost.user + cost.system, 1e-9), correct);
  std::fflush(stdout);
}

// Normal numbers of the scale that trained weights have, cut out of one pool.
void write_checkpoint(const std::string& folder, std::int64_t layers) {
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<std::uint16_t> pool(static_cast<std::size_t>(kInner * kWidth));
  for (std::uint16_t& v : pool) v = encode_bf16(normal(random));
  std::vector<StoredTensor> tensors;
  const auto add = [&](const std::string& name, Dims dims) {
    tensors.push_back({name, DType::kBF16, std::move(dims), {}});
  };
  add("model.embed_tokens.weight", {kVocabulary, kWidth});
  add("model.norm.weight", {kWidth});
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string block = fmt::format("model.layers.{}.", i);
    add(block + "input_layernorm.weight", {kWidth});
    add(block + "post_attention_layernorm.weight", {kWidth});
    add(block + "self_attn.q_proj.weight", {kWidth, kWidth});
    add(block + "self_attn.k_proj.weight", {kWidth / 4, kWidth});
    add(block + "self_attn.v_proj.weight", {kWidth / 4, kWidth});
    add(block + "self_attn.o_proj.weight", {kWidth, kWidth});
    add(block + "mlp.gate_proj.weight", {kInner, kWidth});
    add(block + "mlp.up_proj.weight", {kInner, kWidth});
    add(block + "mlp.down_proj.weight", {kWidth, kInner});
  }
  make_directories(folder);
  SafetensorsWriter file(join_path(folder, "model.safetensors"), tensors);
  for (StoredTensor& tensor : tensors) {
    const auto bytes = static_cast<std::size_t>(stored_bytes(tensor));
    tensor.data = Tensor::copy_of(tensor.dtype, tensor.dims, pool.data(), bytes);
    file.put(tensor);
  }
  file.seal();
  file.commit();
  write_file_atomically(
      join_path(folder, "config.json"),
      fmt::format(R"({{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":{},)"
                  R"("intermediate_size":{},"num_hidden_layers":{},"num_attention_heads":32,)"
                  R"("num_key_value_heads":8,"head_dim":64,"vocab_size":{},"max_position_embeddings":2048,)"
                  R"("rms_norm_eps":1e-5,"rope_theta":10000.0,"hidden_act":"silu",)"
                  R"("tie_word_embeddings":true,"torch_dtype":"bfloat16"}})",
                  kWidth, kInner, layers, kVocabulary));
}

// What the bytes alone cost: every tensor copied to memory, and copied to a file, written to the disk and
// read again.
void floors(const Checkpoint& checkpoint, const std::string& folder) {
  std::vector<std::byte> to(static_cast<std::size_t>(kInner * kWidth * 2));
  const std::int64_t bytes = checkpoint.weights->bytes();
  show("floor: reading the mapped weights", bytes, cost_of([&] {
         for (const WeightStore::Entry& entry : checkpoint.weights->entries())
           std::memcpy(to.data(), checkpoint.weights->get(entry.name).data(),
                       static_cast<std::size_t>(entry.bytes));
       }),
       true);
  const std::string path = join_path(folder, "floor.bin");
  const auto quarter = static_cast<std::size_t>(bytes / 4);  // of 16 bits: INT4
  const auto half = std::min(quarter, to.size());
  show("floor: a quarter of the bytes written and read back", bytes, cost_of([&] {
         {
           AtomicFile file(path);
           for (std::size_t done = 0; done < quarter; done += half)
             file.write(std::span(to.data(), std::min(half, quarter - done)));
           file.commit();
         }
         const MappedFile back(path);
         std::size_t sum = 0;
         for (std::size_t i = 0; i < back.bytes().size(); i += 64)
           sum += static_cast<std::size_t>(back.bytes()[i]);
         if (sum == 1) fmt::print("\n");  // the loop has a use
       }),
       true);
  remove_tree(path);
}

bool job(const Checkpoint& checkpoint, const std::string& folder, const std::string& text) {
  std::vector<std::string> parts = {""};
  for (const char c : text)
    if (c == ':')
      parts.emplace_back();
    else
      parts.back() += c;
  parts.resize(3);
  if (parts[2].empty()) parts[2] = "compressed_tensors";
  QuantizeSpec recipe;
  recipe.scheme = parts[0];
  recipe.method = parts[1].empty() ? "rtn" : parts[1];
  Dialect dialect = Dialect::kCompressedTensors;
  if (!dialect_from_name(parts[2], dialect)) fail(ErrorCode::kUsage, "no export '{}'", parts[2]);
  if (recipe.scheme == "int4_g32") recipe.scheme = "int4", recipe.group_size = 32;
  if (recipe.scheme == "int4_asym") recipe.scheme = "int4", recipe.weights.symmetric = false;
  ThreadPool pool(1);
  StreamOptions options;
  options.dialect = dialect;
  options.pool = &pool;
  const quant::Spec spec = checkpoint_spec(checkpoint, dialect, quant_spec(recipe), false);
  const std::unique_ptr<QuantizedSource> source = stream_source(checkpoint, spec, options);
  std::int64_t bytes = 0;
  for (const LinearFormat& layer : source->model().layers) bytes += 2 * layer.outs * layer.ins;
  const auto count = source->model().layers.size();
  show(text + ", codes alone", bytes, cost_of([&] {
         for (std::size_t i = 0; i < count; ++i) source->layer(i);
       }),
       true);
  bool correct = true;
  const std::string out = join_path(folder, "out");
  const Cost cost = cost_of([&] {
    remove_tree(out);
    correct = export_checkpoint(checkpoint, *source, dialect, out, {}).audit.passed() && correct;
  });
  remove_tree(out);
  show(text, bytes, cost, correct);
  return correct;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "stream_bench FOLDER [LAYERS] [JOB...]\n");
    return 2;
  }
  try {
    if (const char* wanted = std::getenv("PARE_ISA")) set_isa(isa_from_name(wanted));
    const std::string folder = join_path(argv[1], "stream_bench");
    write_checkpoint(folder, argc > 2 ? std::max(1, std::atoi(argv[2])) : 3);
    std::vector<std::string> jobs(argv + std::min(argc, 3), argv + argc);
    if (jobs.empty())
      jobs = {"W8A16:rtn",     "W8A8:rtn",         "int4:rtn",         "int4_g32:rtn",
              "int4_asym:rtn", "int3:rtn",         "fp8_weights:rtn",  "FP8_DYNAMIC:rtn",
              "FP8_BLOCK:rtn", "nvfp4:rtn",        "mxfp4:rtn",        "mxfp8:rtn",
              "nvfp4:search",  "int4:rtn:autoawq", "int4:rtn:gptq_v2", "nvfp4:rtn:modelopt"};
    bool correct = true;
    {
      const Checkpoint checkpoint = open_checkpoint(folder);
      floors(checkpoint, folder);
      for (const std::string& one : jobs) correct = job(checkpoint, folder, one) && correct;
    }
    remove_tree(folder);
    return correct ? 0 : 1;
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
