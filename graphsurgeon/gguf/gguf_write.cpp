#include "graphsurgeon/gguf/gguf_write.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/paths.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/ggml_encode.h"
#include "engine/numeric/table.h"
#include "graphsurgeon/checkpoint/finite.h"
#include "graphsurgeon/checkpoint/tokenizer_json.h"
#include "graphsurgeon/families/linear_modules.h"
#include "graphsurgeon/gguf/gguf_metadata.h"
#include "graphsurgeon/gguf/gguf_model.h"

namespace pare {
namespace {

constexpr std::uint64_t kAlignment = 32;
constexpr std::int64_t kGroup = 32;
constexpr int kWrittenTypes[] = {0, 1, 30, 2, 3, 8, 12};  // F32 F16 BF16 Q4_0 Q4_1 Q8_0 Q4_K

// "model.layers.3.self_attn.q_proj.weight" -> "blk.3.attn_q.weight"; "" for a name that ggml does not have.
std::string ggml_name(const std::string& name) {
  static const std::map<std::string, std::string> kWhole = {
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"model.norm.weight", "output_norm.weight"},
      {"lm_head.weight", "output.weight"}};
  static const std::map<std::string, std::string> kParts = {
      {"input_layernorm", "attn_norm"},    {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},      {"self_attn.o_proj", "attn_output"},
      {"self_attn.qkv_proj", "attn_qkv"},  {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"}, {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},           {"mlp.down_proj", "ffn_down"},
      {"mlp.gate_up_proj", "ffn_up"}};
  if (const auto whole = kWhole.find(name); whole != kWhole.end()) return whole->second;
  const std::string start = "model.layers.";
  if (name.rfind(start, 0) != 0) return "";
  const std::size_t dot = name.find('.', start.size()), last = name.rfind('.');
  if (dot == std::string::npos || last <= dot) return "";
  const auto part = kParts.find(name.substr(dot + 1, last - dot - 1));
  if (part == kParts.end()) return "";
  return "blk." + name.substr(start.size(), dot - start.size()) + "." + part->second + name.substr(last);
}

TokenizerSpec tokenizer_of(const std::string& path) {
  return is_directory(path) ? read_tokenizer(path) : gguf_tokenizer(open_gguf(path));
}

std::string architecture_of(const Checkpoint& checkpoint) {
  const std::string& type = checkpoint.config.model_type;
  if (type == "llama" || type == "mistral") return "llama";
  for (const char* same : {"qwen2", "qwen3", "phi3"})
    if (type == same) return type;
  throw make_error(ErrorCode::kUnsupported, "models of type '{}' are not written as GGUF", type)
      .at(checkpoint.path)
      .hint("llama, mistral, qwen2, qwen3 and phi3 are");
}

// What each frequency of Llama 3 is divided by.
std::vector<float> llama3_factors(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  const auto original =
      static_cast<double>(rope.original_context > 0 ? rope.original_context : config.context);
  std::vector<float> factors;
  for (std::int64_t i = 0; i < config.head_size / 2; ++i) {
    const double frequency =
        std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(config.head_size));
    const double turns = original * frequency / (2 * M_PI);  // in the original context
    double factor = 1;
    if (turns < rope.low_frequency) {
      factor = rope.factor;
    } else if (turns <= rope.high_frequency) {
      const double smooth = (turns - rope.low_frequency) / (rope.high_frequency - rope.low_frequency);
      factor = 1 / ((1 - smooth) / rope.factor + smooth);
    }
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

// Heads of a tensor whose rows are turned; 0: they stay.
std::int64_t turned_heads(const Checkpoint& checkpoint, const std::string& tensor) {
  const std::string& type = checkpoint.config.model_type;
  if (type != "llama" && type != "mistral") return 0;
  if (tensor.find(".self_attn.q_proj.") != std::string::npos) return checkpoint.config.heads;
  return tensor.find(".self_attn.k_proj.") != std::string::npos ? checkpoint.config.kv_heads : 0;
}

// Row that comes to place `row`: halves of a head become neighbours.
std::int64_t source_row(std::int64_t row, std::int64_t rows, std::int64_t heads) {
  if (heads == 0) return row;
  const std::int64_t size = rows / heads, head = row / size, in = row % size;
  return head * size + in % 2 * (size / 2) + in / 2;
}

struct Out {
  std::string name;
  const GgmlType* type = nullptr;
  Dims dims;
  std::string source;      // tensor of the checkpoint; "": `values`
  int layer = -1;          // of options.layers
  std::int64_t heads = 0;  // rows are turned into ggml's order: so many heads
  std::vector<float> values;

  std::int64_t bytes() const { return element_count(dims) / type->block * type->bytes; }
};

class Writer {
 public:
  Writer(const Checkpoint& checkpoint, const GgufWriteOptions& options)
      : checkpoint_(checkpoint), options_(options), arch_(architecture_of(checkpoint)) {
    describe();
    add_tokenizer(tokenizer_of(checkpoint.path), checkpoint.config.vocabulary, metadata_);
    list_tensors();
  }

  WrittenGguf write(const std::string& path) {
    PARE_ASSERT(options_.pool != nullptr);
    WrittenGguf result;
    std::string head = "GGUF";
    GgufMetadata::put(head, std::uint32_t{3});
    GgufMetadata::put(head, static_cast<std::uint64_t>(tensors_.size()));
    GgufMetadata::put(head, metadata_.count());
    head += metadata_.bytes();
    std::uint64_t offset = 0;
    for (const Out& tensor : tensors_) {
      GgufMetadata::put_text(head, tensor.name);
      GgufMetadata::put(head, static_cast<std::uint32_t>(tensor.dims.size()));
      for (std::size_t i = tensor.dims.size(); i-- > 0;)
        GgufMetadata::put(head, static_cast<std::uint64_t>(tensor.dims[i]));
      GgufMetadata::put(head, static_cast<std::uint32_t>(tensor.type->code));
      GgufMetadata::put(head, offset);
      offset += padded(static_cast<std::uint64_t>(tensor.bytes()));
      result.bytes += tensor.bytes();
      ++result.tensors;
      ++result.types[tensor.type->name];
    }
    head.append(padded(head.size()) - head.size(), '\0');
    AtomicFile file(path);
    file.write(head);
    for (const Out& tensor : tensors_) {
      std::vector<std::uint8_t> bytes =
          with_context(fmt::format("writing the tensor '{}'", tensor.name), [&] { return bytes_of(tensor); });
      bytes.resize(padded(bytes.size()), 0);
      file.write(std::as_bytes(std::span(bytes)));
    }
    file.commit();
    return result;
  }

 private:
  static std::uint64_t padded(std::uint64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

  void describe() {
    const ModelConfig& c = checkpoint_.config;
    const auto number = [&](const std::string& key, std::int64_t value) {
      metadata_.number(arch_ + "." + key, static_cast<std::uint32_t>(value));
    };
    metadata_.text("general.architecture", arch_);
    metadata_.text("general.type", "model");
    metadata_.text("general.name", c.architecture.empty() ? c.model_type : c.architecture);
    metadata_.number("general.quantization_version", std::uint32_t{2});
    metadata_.number("general.file_type", file_type());
    number("block_count", c.layers);
    number("context_length", c.context);
    number("embedding_length", c.hidden);
    number("feed_forward_length", c.intermediate);
    number("attention.head_count", c.heads);
    number("attention.head_count_kv", c.kv_heads);
    number("attention.key_length", c.head_size);
    number("attention.value_length", c.head_size);
    number("vocab_size", c.vocabulary);
    number("rope.dimension_count",
           static_cast<std::int64_t>(std::lround(static_cast<double>(c.head_size) * c.rope.partial)));
    metadata_.number(arch_ + ".attention.layer_norm_rms_epsilon", static_cast<float>(c.norm_epsilon));
    metadata_.number(arch_ + ".rope.freq_base", static_cast<float>(c.rope.theta));
    if (c.window > 0) number("attention.sliding_window", c.window);
    if (c.rope.type == "linear" || c.rope.type == "yarn") {
      metadata_.text(arch_ + ".rope.scaling.type", c.rope.type);
      metadata_.number(arch_ + ".rope.scaling.factor", static_cast<float>(c.rope.factor));
      if (c.rope.original_context > 0)
        number("rope.scaling.original_context_length", c.rope.original_context);
    } else if (c.rope.type != "default" && c.rope.type != "llama3") {
      throw make_error(ErrorCode::kUnsupported, "GGUF files are not written with rope scaling '{}'",
                       c.rope.type)
          .at(checkpoint_.path)
          .hint("export compressed_tensors, which keeps config.json");
    }
    for (const auto& [key, value] : options_.metadata) metadata_.text(key, value);
  }

  // llama.cpp's number for what most tensors are.
  std::uint32_t file_type() const {
    static const std::map<std::string, std::uint32_t> kNumbers = {{"F32", 0},   {"F16", 1},   {"Q4_0", 2},
                                                                  {"Q4_1", 3},  {"Q8_0", 7},  {"Q4_K", 14},
                                                                  {"BF16", 32}, {"MXFP4", 38}};
    const bool layers = options_.layers != nullptr && !options_.layers->model().layers.empty();
    const auto found =
        kNumbers.find(layers ? type_of(options_.layers->model().layers[0]).name : wanted(options_.type).name);
    return found == kNumbers.end() ? 0 : found->second;
  }

  static const GgmlType& wanted(const std::string& name) {
    if (const GgmlType* type = gguf_written_type(name); type != nullptr) return *type;
    std::string list;
    for (const int code : kWrittenTypes)
      list += (list.empty() ? "" : ", ") + std::string(find_ggml_type(code)->name);
    throw make_error(ErrorCode::kUnsupported, "GGUF tensors are not written as {}", name)
        .hint("types: " + list);
  }

  static const GgmlType& fitting(const GgmlType& type, std::int64_t columns) {
    if (columns % type.block == 0) return type;
    if (type.code == 12 && columns % kGroup == 0) return *find_ggml_type(3);
    return *find_ggml_type(1);
  }

  void list_tensors() {
    std::map<std::string, int> layers;  // by tensor
    if (options_.layers != nullptr) {
      const std::vector<LinearFormat>& list = options_.layers->model().layers;
      check_gguf(list, "export");
      for (std::size_t i = 0; i < list.size(); ++i) layers[list[i].module + ".weight"] = static_cast<int>(i);
    }
    std::set<std::string> linear;
    for (const LinearModule& module : linear_modules(checkpoint_))
      if (!module.tied && module.module != "lm_head") linear.insert(module.weight);
    const ModelConfig& c = checkpoint_.config;
    for (const WeightStore::Entry& entry : checkpoint_.weights->entries()) {
      if (c.tied && entry.name == "lm_head.weight") continue;
      if (entry.name.find("rotary_emb.inv_freq") != std::string::npos)
        continue;  // of old checkpoints: computed
      Out out;
      out.name = ggml_name(entry.name);
      if (out.name.empty())
        throw make_error(ErrorCode::kUnsupported, "GGUF has no name for the tensor '{}'", entry.name)
            .at(checkpoint_.path)
            .hint("export compressed_tensors: GGUF knows only the tensors of its architectures");
      out.dims = entry.dims;
      out.source = entry.name;
      out.type = find_ggml_type(0);
      if (entry.dims.size() == 2)
        out.type = &fitting(wanted(linear.count(entry.name) != 0 ? options_.type : options_.embedding),
                            entry.dims[1]);
      if (const auto layer = layers.find(entry.name); layer != layers.end()) {
        out.layer = layer->second;
        out.type = &type_of(options_.layers->model().layers[static_cast<std::size_t>(out.layer)]);
      }
      out.heads = turned_heads(checkpoint_, entry.name);
      tensors_.push_back(std::move(out));
    }
    if (c.rope.type == "llama3") {
      Out out;
      out.name = "rope_freqs.weight";
      out.type = find_ggml_type(0);
      out.values = llama3_factors(c);
      out.dims = {static_cast<std::int64_t>(out.values.size())};
      tensors_.push_back(std::move(out));
    }
  }

  static const GgmlType& type_of(const LinearFormat& layer) {
    const DType codes = layer.weights.codes;
    return *find_ggml_type(codes == DType::kE2M1 ? 39 : layer.weights.bits == 8 ? 8 : 2);
  }

  std::vector<std::uint8_t> bytes_of(const Out& out) const {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(out.bytes()));
    if (out.layer >= 0) {
      pack_layer(options_.layers->layer(static_cast<std::size_t>(out.layer)), out, bytes);
      return bytes;
    }
    if (out.source.empty()) {
      std::memcpy(bytes.data(), out.values.data(), bytes.size());
      return bytes;
    }
    const Tensor stored = checkpoint_.weights->get(out.source);
    refuse_nonfinite(out.source, stored, checkpoint_.path);
    const std::int64_t rows = out.heads > 0 || out.dims.size() > 1 ? out.dims[0] : 1;
    const std::int64_t columns = stored.size() / std::max<std::int64_t>(rows, 1);
    const std::int64_t row_bytes = out.bytes() / std::max<std::int64_t>(rows, 1);
    const auto* from = stored.as<std::byte>();
    const std::int64_t element = bits(stored.dtype()) / 8;
    options_.pool->parallel_for(rows, 8, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> row(static_cast<std::size_t>(columns));
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t at = source_row(r, rows, out.heads);
        decode(stored.dtype(), from + at * columns * element, row.data(), columns);
        encode_row(row, *out.type, bytes.data() + r * row_bytes);
      }
    });
    return bytes;
  }

  static void encode_row(const std::vector<float>& row, const GgmlType& type, std::uint8_t* to) {
    const auto n = static_cast<std::int64_t>(row.size());
    if (type.plain != DType::kUndefined)
      format_info(type.plain).encode(row.data(), to, n);
    else
      ggml_encoder(type.code)(row.data(), to, n / type.block);
  }

  static void pack_layer(const QuantizedLinear& layer, const Out& out, std::vector<std::uint8_t>& bytes) {
    check_linear(layer);
    const std::int64_t groups = column_groups(layer);
    const FormatInfo& scale_type = format_info(layer.weights.scales);
    std::uint8_t codes[kGroup];
    for (std::int64_t r = 0; r < layer.outs; ++r) {
      const std::int64_t from = source_row(r, layer.outs, out.heads);
      for (std::int64_t g = 0; g < groups; ++g) {
        const std::uint8_t* source = layer.codes.data() + from * layer.ins + g * kGroup;
        std::uint8_t* to = bytes.data() + (r * groups + g) * out.type->bytes;
        std::uint16_t scale = 0;
        scale_type.encode(&layer.scales[static_cast<std::size_t>(from * groups + g)], &scale, 1);
        for (std::int64_t i = 0; i < kGroup; ++i)
          codes[i] = out.type->code == 2 ? static_cast<std::uint8_t>(static_cast<std::int8_t>(source[i]) + 8)
                                         : source[i];
        (out.type->code == 2 ? pack_q4_0 : out.type->code == 8 ? pack_q8_0 : pack_mxfp4)(codes, scale, to);
      }
    }
  }

  const Checkpoint& checkpoint_;
  const GgufWriteOptions& options_;
  std::string arch_;
  GgufMetadata metadata_;
  std::vector<Out> tensors_;
};

}  // namespace

std::int64_t gguf_source_row(const Checkpoint& checkpoint, const std::string& tensor, std::int64_t row,
                             std::int64_t rows) {
  return source_row(row, rows, turned_heads(checkpoint, tensor));
}

const GgmlType* gguf_written_type(const std::string& name) {
  std::string upper = name;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const int code : kWrittenTypes)
    if (const GgmlType* type = find_ggml_type(code); type != nullptr && upper == type->name) return type;
  return nullptr;
}

std::vector<const GgmlType*> gguf_quantized_types() {
  std::vector<const GgmlType*> types;
  for (const int code : kWrittenTypes)
    if (const GgmlType* type = find_ggml_type(code); type->block > 1) types.push_back(type);
  return types;
}

std::string gguf_why_not(const LinearFormat& layer) {
  const CodeFormat& w = layer.weights;
  if (layer.inputs.active()) return "has inputs in " + to_string(layer.inputs);
  if (layer.act_order || layer.input_factors || layer.in_first)
    return "has an order of groups, factors, or a layout of its own";
  const bool integer = w.symmetric && (w.codes == DType::kI4 || w.codes == DType::kI8) &&
                       w.bits == bits(w.codes) && w.scales == DType::kF16;
  const bool mx = w.codes == DType::kE2M1 && w.scales == DType::kE8M0;
  if (w.row_group != 1 || w.group != kGroup || !(integer || mx)) return "is coded as " + to_string(w);
  return layer.ins % kGroup == 0 ? "" : fmt::format("has {} inputs, no multiple of {}", layer.ins, kGroup);
}

void check_gguf(const std::vector<LinearFormat>& layers, const std::string& place) {
  for (const LinearFormat& layer : layers)
    if (const std::string why = gguf_why_not(layer); !why.empty())
      throw make_error(ErrorCode::kUnsupported, "gguf cannot hold this: layer '{}' {}", layer.module, why)
          .at(place)
          .hint(
              "it has symmetric codes of 4 and 8 bits in groups of 32 (int4 or int8_weights with "
              "--group-size 32, "
              "in a recipe group_size: 32), mxfp4, and ggml's own types (pare quantize --format q4_k "
              "--export gguf)");
}

void check_gguf_model(const Checkpoint& checkpoint, const GgufWriteOptions& options) {
  const Writer known(checkpoint, options);
}

WrittenGguf write_gguf(const Checkpoint& checkpoint, const std::string& path,
                       const GgufWriteOptions& options) {
  return with_context(fmt::format("writing the GGUF file '{}'", path),
                      [&] { return Writer(checkpoint, options).write(path); });
}

}  // namespace pare
