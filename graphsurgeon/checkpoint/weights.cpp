#include "graphsurgeon/checkpoint/weights.h"

#include <algorithm>
#include <map>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "engine/numeric/table.h"
#include "graphsurgeon/checkpoint/finite.h"
#include "graphsurgeon/checkpoint/safetensors.h"

namespace pare {

const WeightStore::Entry* WeightStore::find(const std::string& name) const {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), name,
                                   [](const Entry& e, const std::string& text) { return e.name < text; });
  return at != entries_.end() && at->name == name ? &*at : nullptr;
}

const LinearFormat* WeightStore::coded(const std::string&) const { return nullptr; }
QuantizedLinear WeightStore::codes(const std::string& name) const {
  fail(ErrorCode::kInternal, "'{}' has no codes", name);
}
const KvScales* WeightStore::kv_scales(const std::string&, DType&) const { return nullptr; }

std::int64_t WeightStore::bytes() const {
  std::int64_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.bytes;
  return sum;
}

std::int64_t WeightStore::parameters() const {
  std::int64_t sum = 0;
  for (const Entry& entry : entries_) sum += element_count(entry.dims);
  return sum;
}

namespace {

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kIndexHint = "download the index again; it belongs to these shards alone";

class SafetensorsWeights final : public WeightStore {
 public:
  explicit SafetensorsWeights(const std::string& path)
      : folder_(is_directory(path) ? path : parent_path(path)) {
    if (!is_directory(path))
      add_file(file_name(path));
    else if (is_regular_file(join_path(path, kIndex)))
      by_index();
    else
      by_listing();
    for (const auto& [name, held] : tensors_)
      entries_.push_back(
          {name, pare::name(held.tensor.dtype()), held.tensor.dims(), held.tensor.bytes(), held.file});
  }

  Tensor get(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end())
      throw make_error(ErrorCode::kBadFile, "there is no tensor '{}'", name)
          .at(folder_)
          .hint("config.json asks for it: are the two of one model, and the weights downloaded whole?");
    return found->second.tensor;
  }

 private:
  struct Held {
    Tensor tensor;
    std::string file;
  };

  void add_file(const std::string& file) {
    for (auto& [name, tensor] : open_safetensors(join_path(folder_, file)).tensors) {
      const auto [at, added] = tensors_.insert({name, {tensor, file}});
      if (!added)
        throw make_error(ErrorCode::kBadFile, "tensor '{}' is in {} and in {}", name, at->second.file, file)
            .at(folder_)
            .hint("keep the files of one model in the folder, with their index");
    }
  }

  void by_index() {
    const std::string index = join_path(folder_, kIndex);
    const Json json = read_json_file(index);
    std::map<std::string, std::map<std::string, Tensor>> shards;
    const Json& map = json_object(json, "weight_map", index);
    for (const auto& [name, value] : map.items()) {
      if (!value.is_string())
        throw make_error(ErrorCode::kBadFile, "weight_map: the file of '{}' is no text", name)
            .at(index)
            .hint(kIndexHint);
      const std::string file = value.get<std::string>();
      if (file.empty() || file.find('/') != std::string::npos || file == "..")
        throw make_error(ErrorCode::kBadFile, "weight_map: '{}' is no file of this folder", file)
            .at(index)
            .hint(kIndexHint);
      if (shards.count(file) == 0) {
        if (!is_regular_file(join_path(folder_, file)))
          throw make_error(ErrorCode::kBadFile, "the shard {} is missing", file)
              .at(folder_)
              .hint(fmt::format("{} names it, for '{}' among others; download it again", kIndex, name));
        shards[file] = open_safetensors(join_path(folder_, file)).tensors;
      }
    }
    for (const auto& [name, value] : map.items()) {
      const std::string file = value.get<std::string>();
      const auto found = shards[file].find(name);
      if (found == shards[file].end()) {
        const std::string where = who_holds(name, file);
        throw make_error(ErrorCode::kBadFile, "tensor '{}' is not in {}, as the index says: {}", name, file,
                         where)
            .at(index)
            .hint(kIndexHint);
      }
      tensors_.insert({name, {found->second, file}});
    }
  }

  // For the message: a file of the folder that has the tensor after all.
  std::string who_holds(const std::string& name, const std::string& not_in) const {
    for (const std::string& other : list_directory(folder_)) {
      if (other == not_in || file_extension(other) != ".safetensors") continue;
      try {
        if (open_safetensors(join_path(folder_, other)).tensors.count(name) != 0) return "it is in " + other;
      } catch (const Error&) {  // damaged: then it is not known to hold it
      }
    }
    return "no shard holds it";
  }

  void by_listing() {
    std::vector<std::string> files;
    for (const std::string& name : list_directory(folder_))
      if (file_extension(name) == ".safetensors") files.push_back(name);
    if (std::find(files.begin(), files.end(), "model.safetensors") != files.end())
      files = {"model.safetensors"};
    if (files.empty())
      throw make_error(ErrorCode::kBadFile, "there are no weights: no .safetensors file")
          .at(folder_)
          .hint("other forms (.bin, .pt) hold programs and are not read; save the model as safetensors");
    for (const std::string& file : files) {
      // "model-00002-of-00006.safetensors": are all six there?
      const std::size_t of = file.rfind("-of-");
      if (of != std::string::npos) {
        const std::size_t count = std::strtoul(file.c_str() + of + 4, nullptr, 10);
        if (count != 0 && count != files.size())
          throw make_error(ErrorCode::kBadFile, "{} is one of {} shards, and {} are here", file, count,
                           files.size())
              .at(folder_)
              .hint("download the missing ones");
      }
      add_file(file);
    }
  }

  std::string folder_;
  std::map<std::string, Held> tensors_;
};

}  // namespace

std::unique_ptr<WeightStore> open_safetensors_weights(const std::string& path) {
  return std::make_unique<SafetensorsWeights>(path);
}

std::vector<NonfiniteWeights> find_nonfinite(const WeightStore& store) {
  std::vector<NonfiniteWeights> found;
  for (const WeightStore::Entry& entry : store.entries()) {
    DType type = DType::kF32;  // GGUF's blocks come out so
    if (dtype_from_name(entry.type, type) && !is_float(type)) continue;
    NonfiniteWeights sum = count_nonfinite(entry.name, store.get(entry.name));
    if (sum.nan + sum.inf > 0) found.push_back(std::move(sum));
  }
  return found;
}

}  // namespace pare
