#include "graphsurgeon/onnx/external_store.h"

#include <algorithm>
#include <array>

#include "engine/base/error.h"
#include "engine/base/paths.h"
#include "engine/base/sha1.h"
#include "engine/base/sha256.h"
#include "graphsurgeon/onnx/external_data.h"
#include "graphsurgeon/onnx/proto_walk.h"

namespace pare {
namespace {

constexpr std::size_t kMaxFileName = 200;  // of the 255 bytes of a Linux file name

void entry(onnx::TensorProto& proto, const char* key, const std::string& value) {
  auto* e = proto.add_external_data();
  e->set_key(key);
  e->set_value(value);
}

std::string file_safe(const std::string& name) {
  std::string safe = name.substr(0, kMaxFileName);
  for (char& c : safe) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '-' || c == '_';
    if (!good) c = '_';
  }
  return safe.empty() ? "tensor" : safe;
}

}  // namespace

ExternalStore::ExternalStore(const std::string& model_path, const ExternalOptions& options)
    : folder_(parent_path(model_path)), model_name_(file_name(model_path)), options_(options) {
  if (options_.location.empty()) options_.location = model_name_ + ".data";
  if (!why_bad_location(options_.location).empty() || options_.location.find('/') != std::string::npos ||
      options_.location == model_name_ || options_.location == ".")
    throw make_error(ErrorCode::kUsage, "'{}' cannot be the file of weights of '{}'", options_.location,
                     model_name_)
        .hint("give a plain file name; the file is put beside the model");
  locations_.insert(model_name_);
}

ExternalStore::~ExternalStore() = default;

std::size_t ExternalStore::file_for(const std::string& tensor_name) {
  if (options_.files == ExternalFiles::kOne) {
    if (files_.empty()) files_.emplace_back().location = options_.location;
    return 0;
  }
  const std::string stem = (model_name_ + "." + file_safe(tensor_name)).substr(0, kMaxFileName);
  std::string location = stem + ".data";
  for (int i = 1; !locations_.insert(location).second; ++i) location = fmt::format("{}.{}.data", stem, i);
  files_.emplace_back().location = location;
  return files_.size() - 1;
}

bool ExternalStore::take(const Tensor& tensor, onnx::TensorProto& proto) {
  if (options_.files == ExternalFiles::kNone || tensor.dtype() == DType::kString) return false;
  const std::int64_t bytes = tensor.bytes();
  if (bytes == 0 || bytes < options_.threshold) return false;
  const auto key = std::make_pair(tensor.data(), bytes);
  auto found = known_.find(key);
  if (found == known_.end()) {
    const std::size_t index = file_for(proto.name());
    File& file = files_[index];
    const std::int64_t offset =
        (file.size + kExternalAlignment - 1) / kExternalAlignment * kExternalAlignment;
    file.pieces.push_back({tensor, offset});
    file.size = offset + bytes;
    found = known_.emplace(key, Place{index, offset}).first;
  }
  ++tensors_;
  proto.clear_raw_data();
  proto.clear_external_data();
  proto.set_data_location(onnx::TensorProto::EXTERNAL);
  entry(proto, "location", files_[found->second.file].location);
  entry(proto, "offset", std::to_string(found->second.offset));
  entry(proto, "length", std::to_string(bytes));
  return true;
}

std::int64_t ExternalStore::bytes() const {
  std::int64_t sum = 0;
  for (const File& file : files_) sum += file.size;
  return sum;
}

std::vector<std::string> ExternalStore::locations() const {
  std::vector<std::string> all;
  for (const File& file : files_) all.push_back(file.location);
  return all;
}

void ExternalStore::write_file(File& file) {
  constexpr std::size_t kStep = 4u << 20;  // hashed while it is in the cache
  static constexpr std::array<std::byte, kExternalAlignment> kZeros{};
  file.written = std::make_unique<AtomicFile>(join_path(folder_, file.location));
  Sha1 sha1;
  Sha256 sha256;
  const auto put = [&](std::span<const std::byte> bytes) {
    sha1.update(bytes);
    sha256.update(bytes);
    file.written->write(bytes);
  };
  std::int64_t at = 0;
  for (const Piece& piece : file.pieces) {
    put(std::span(kZeros).first(static_cast<std::size_t>(piece.offset - at)));
    const auto bytes = piece.tensor.byte_span();
    for (std::size_t done = 0; done < bytes.size(); done += kStep)
      put(bytes.subspan(done, std::min(kStep, bytes.size() - done)));
    at = piece.offset + static_cast<std::int64_t>(bytes.size());
  }
  file.written->seal();
  file.sha1 = sha1.finish();
  file.sha256 = hex(sha256.finish());
}

void ExternalStore::write(onnx::ModelProto& model) {
  std::map<std::string, const File*> by_location;
  for (File& file : files_) {
    write_file(file);
    by_location[file.location] = &file;
  }
  for_each_tensor(model, [&](onnx::TensorProto& tensor, TensorPlace) {
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return;
    const auto file = by_location.find(tensor.external_data(0).value());
    if (file != by_location.end()) entry(tensor, "checksum", file->second->sha1);
  });
  for (const auto& [location, file] : by_location) {
    auto* property = model.add_metadata_props();
    property->set_key(kSha256Key + location);
    property->set_value(file->sha256);
  }
}

void ExternalStore::commit(AtomicFile& model) {
  model.seal();
  const bool replaces = std::any_of(files_.begin(), files_.end(),
                                    [](const File& file) { return path_exists(file.written->final_path()); });
  if (replaces) remove_file(model.final_path());
  for (File& file : files_) file.written->commit();
  model.commit();
}

}  // namespace pare
