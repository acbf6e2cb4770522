#include "graphsurgeon/checkpoint/write_quantized.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <memory>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "graphsurgeon/checkpoint/linear_codes_simd.h"
#include "graphsurgeon/checkpoint/safetensors_write.h"

namespace pare {
namespace {

constexpr std::uint64_t kLargestCompanion = 256u << 20;  // bytes of a file that goes along

// A layer, or a tensor that stays float: what is never cut between two shards.
struct Unit {
  std::string name;
  bool is_layer = false;
  std::size_t index = 0;              // of layers or floats
  std::vector<StoredTensor> tensors;  // places
  std::int64_t bytes = 0;
};

std::vector<Unit> units_of(const QuantizedModel& model, const DialectInfo& info) {
  std::vector<Unit> units;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    QuantizedLinear layer;
    static_cast<LinearFormat&>(layer) = model.layers[i];
    units.push_back(Unit{model.layers[i].module, true, i, info.tensors(layer), 0});
  }
  for (std::size_t i = 0; i < model.floats.size(); ++i) {
    const FloatTensor& tensor = model.floats[i];
    units.push_back(
        Unit{tensor.name, false, i, {StoredTensor{tensor.name, tensor.dtype, tensor.dims, {}}}, 0});
  }
  for (Unit& unit : units)
    for (const StoredTensor& tensor : unit.tensors) unit.bytes += stored_bytes(tensor);
  std::stable_sort(units.begin(), units.end(),
                   [](const Unit& a, const Unit& b) { return natural_less(a.name, b.name); });
  return units;
}

// Text that goes along with a model; nothing that holds weights, and nothing that is written anew.
bool goes_along(const std::string& name) {
  static const char* const kAnew[] = {"config.json", "model.safetensors.index.json", "hf_quant_config.json",
                                      "quantize_config.json", "quant_config.json"};
  if (std::any_of(std::begin(kAnew), std::end(kAnew), [&](const char* own) { return name == own; }))
    return false;
  if (name.find(".index.json") != std::string::npos) return false;
  for (const char* start : {"LICENSE", "LICENCE", "NOTICE", "COPYING", "USE_POLICY"})
    if (name.rfind(start, 0) == 0) return true;
  const std::string extension = file_extension(name);
  for (const char* known : {".json", ".txt", ".model", ".jinja", ".md", ".py", ".tiktoken", ".spm"})
    if (extension == known) return true;
  return false;
}

std::string shard_name(std::size_t index, std::size_t count) {
  return count == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

class Writer {
 public:
  Writer(const QuantizedSource& source, const DialectInfo& info, const std::string& path,
         const WriteQuantizedOptions& options)
      : source_(source), info_(info), path_(path), units_(units_of(source.model(), info)) {
    std::int64_t left = 0;
    for (const Unit& unit : units_) {
      if (shards_.empty() || unit.bytes > left) {
        shards_.emplace_back();
        left = options.shard_bytes;
      }
      shards_.back().push_back(&unit);
      left -= unit.bytes;
    }
    if (shards_.empty()) shards_.emplace_back();
    out_.values.resize(source.model().layers.size());
  }

  // What fails leaves nothing: no file, and no folder that was not there.
  WrittenCheckpoint run() {
    const bool made = !path_exists(path_);
    try {
      return write();
    } catch (...) {
      sealed_.clear();
      texts_.clear();
      if (made && is_directory(path_) && list_directory(path_).empty()) remove_tree(path_);
      throw;
    }
  }

 private:
  WrittenCheckpoint write() {
    make_directories(path_);
    remove_stale_temporaries(path_);  // of a killed run
    for (std::size_t i = 0; i < shards_.size(); ++i) write_shard(i);
    if (shards_.size() > 1) write_index();
    companions();
    for (const auto& [name, text] : info_.files(source_.model())) add_text(name, text);
    const std::string config = config_text();
    for (const std::unique_ptr<SafetensorsWriter>& file : sealed_) file->commit();
    for (const std::unique_ptr<AtomicFile>& file : texts_) file->commit();
    write_file_atomically(join_path(path_, "config.json"), config);
    out_.files.push_back("config.json");
    std::sort(out_.files.begin(), out_.files.end());
    return std::move(out_);
  }

  void write_shard(std::size_t index) {
    std::vector<StoredTensor> places;
    for (const Unit* unit : shards_[index])
      places.insert(places.end(), unit->tensors.begin(), unit->tensors.end());
    const std::string name = shard_name(index, shards_.size());
    std::vector<StoredTensor> scales;
    if (index == 0 && info_.kv_tensors != nullptr)
      for (const KvScales& kv : source_.model().kv_scales)
        for (StoredTensor& tensor : info_.kv_tensors(kv)) scales.push_back(std::move(tensor));
    places.insert(places.end(), scales.begin(), scales.end());
    auto file = std::make_unique<SafetensorsWriter>(join_path(path_, name), places);
    for (const Unit* unit : shards_[index]) put(*unit, *file);
    for (const StoredTensor& tensor : scales) file->put(tensor);
    file->seal();
    sealed_.push_back(std::move(file));
    out_.files.push_back(name);
    for (const StoredTensor& tensor : places) {
      shard_of_.push_back({tensor.name, name});
      out_.bytes += stored_bytes(tensor);
      ++out_.tensors;
    }
  }

  void put(const Unit& unit, SafetensorsWriter& file) {
    if (!unit.is_layer) {
      StoredTensor tensor = unit.tensors[0];
      tensor.data = source_.float_tensor(unit.name);
      file.put(tensor);
      return;
    }
    const QuantizedLinear layer = source_.layer(unit.index);
    check_linear(layer);
    out_.values[unit.index] = hash_of_values(layer);
    for (const StoredTensor& tensor : info_.tensors(layer)) file.put(tensor);
  }

  void write_index() {
    std::sort(shard_of_.begin(), shard_of_.end());
    Json json = {{"metadata", {{"total_size", out_.bytes}}}, {"weight_map", Json::object()}};
    for (const auto& [tensor, file] : shard_of_) json["weight_map"][tensor] = file;
    add_text("model.safetensors.index.json", dump(json, 2) + "\n");
  }

  void companions() {
    const std::string& folder = source_.model().folder;
    if (folder.empty()) return;
    for (const std::string& name : list_directory(folder)) {
      const std::string from = join_path(folder, name);
      if (!goes_along(name) || !is_regular_file(from) || file_size(from) > kLargestCompanion) continue;
      if (file_size(from) == 0) {
        add_text(name, "");
        continue;
      }
      const MappedFile bytes(from);
      add_text(name,
               std::string_view(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()));
    }
  }

  void add_text(const std::string& name, std::string_view text) {
    auto file = std::make_unique<AtomicFile>(join_path(path_, name));
    file->write(text);
    file->seal();
    texts_.push_back(std::move(file));
    out_.files.push_back(name);
  }

  std::string config_text() const {
    const QuantizedModel& model = source_.model();
    Json json = Json::object();
    if (!model.folder.empty()) json = read_json_file(join_path(model.folder, "config.json"));
    if (model.untied) {
      json["tie_word_embeddings"] = false;
      if (json.contains("text_config")) json["text_config"]["tie_word_embeddings"] = false;
    }
    json.erase("compression_config");
    if (info_.config != nullptr)
      json["quantization_config"] = info_.config(model);
    else
      json.erase("quantization_config");
    for (const auto& [key, value] : model.provenance) json["pare"][key] = value;
    return dump(json, 2) + "\n";
  }

  const QuantizedSource& source_;
  const DialectInfo& info_;
  std::string path_;
  std::vector<Unit> units_;
  std::vector<std::vector<const Unit*>> shards_;
  std::vector<std::unique_ptr<SafetensorsWriter>> sealed_;
  std::vector<std::unique_ptr<AtomicFile>> texts_;
  std::vector<std::pair<std::string, std::string>> shard_of_;
  WrittenCheckpoint out_;
};

}  // namespace

bool natural_less(const std::string& a, const std::string& b) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      std::size_t m = i, n = j;
      while (m < a.size() && digit(a[m])) ++m;
      while (n < b.size() && digit(b[n])) ++n;
      if (m - i != n - j) return m - i < n - j;
      const int order = a.compare(i, m - i, b, j, n - j);
      if (order != 0) return order < 0;
      i = m, j = n;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

std::uint64_t hash_of_values(const QuantizedLinear& layer) {
  constexpr std::uint64_t kPrime = 0x9E3779B97F4A7C15u;
  const auto mix = PARE_SIMD_PICK(linear_hash);
  std::vector<float> values(static_cast<std::size_t>(layer.ins));
  std::uint32_t lanes[kHashLanes];
  for (int lane = 0; lane < kHashLanes; ++lane) lanes[lane] = static_cast<std::uint32_t>(lane);
  for (std::int64_t row = 0; row < layer.outs; ++row) {
    dequantize_linear(layer, row, row + 1, values.data());
    mix(values.data(), layer.ins, lanes);
  }
  std::uint64_t hash = 0;
  for (const std::uint32_t lane : lanes) hash = std::rotl((hash ^ lane) * kPrime, 31);
  return hash;
}

void check_checkpoint_output(const std::string& path) {
  if (path_exists(path) && !is_directory(path))
    throw make_error(ErrorCode::kUsage, "'{}' is a file, and a checkpoint is a folder", path)
        .at(path)
        .hint("name a folder, or remove the file");
  if (!is_directory(path)) return;
  for (const std::string& name : list_directory(path))
    if (name == "config.json" || file_extension(name) == ".safetensors")
      throw make_error(ErrorCode::kUsage, "the folder '{}' holds a model already ({})", path, name)
          .at(path)
          .hint("give another folder, or remove this one");
}

WrittenCheckpoint write_quantized(const QuantizedSource& source, Dialect dialect, const std::string& path,
                                  const WriteQuantizedOptions& options) {
  check_dialect(dialect, source.model());
  check_checkpoint_output(path);
  return with_context(fmt::format("writing the checkpoint '{}'", path),
                      [&] { return Writer(source, dialect_info(dialect), path, options).run(); });
}

WrittenCheckpoint write_floats(const QuantizedSource& source, const std::string& path,
                               const WriteQuantizedOptions& options) {
  PARE_ASSERT(source.model().layers.empty());
  check_checkpoint_output(path);
  DialectInfo info = dialect_info(Dialect::kCompressedTensors);
  info.config = nullptr;
  info.kv_tensors = nullptr;
  return with_context(fmt::format("writing the checkpoint '{}'", path),
                      [&] { return Writer(source, info, path, options).run(); });
}

}  // namespace pare
