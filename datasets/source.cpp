#include "datasets/source.h"

#include <cstring>
#include <utility>

#include "datasets/npy.h"
#include "datasets/npz.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "engine/base/reader_hints.h"

namespace pare {

const std::byte* Source::base(int) const { return nullptr; }
std::shared_ptr<const void> Source::owner(int) const { return nullptr; }
std::string Source::row_name(std::int64_t) const { return ""; }
bool Source::images() const { return false; }
std::int64_t Source::stream_of(std::int64_t) const { return 0; }
std::int64_t Source::tokens_of_row() const { return 0; }
void Source::targets(std::int64_t, std::int64_t*) const {}

namespace {

// Keeps a copy of the tensor alive, and with it whatever the tensor points into.
class ArraySource : public Source {
 public:
  ArraySource(std::vector<NamedTensor> arrays, const std::string& what) : arrays_(std::move(arrays)) {
    if (arrays_.empty()) fail(ErrorCode::kBadFile, "{}: there is no array in it", what);
    for (const NamedTensor& array : arrays_) {
      const Dims& dims = array.tensor.dims();
      if (dims.empty())
        throw make_error(ErrorCode::kBadFile,
                         "{}: '{}' is a single number; the first dimension counts samples", what, array.name)
            .hint("add a dimension: array[None]");
      if (&array == &arrays_.front()) count_ = dims[0];
      if (dims[0] != count_)
        throw make_error(ErrorCode::kBadFile, "{}: '{}' has {} samples, but '{}' has {}", what,
                         arrays_.front().name, count_, array.name, dims[0])
            .hint("all arrays of a data set have the same first dimension");
      columns_.push_back({array.name, array.tensor.dtype(), Dims(dims.begin() + 1, dims.end())});
    }
  }

  const std::byte* base(int column) const override {
    return static_cast<const std::byte*>(arrays_[static_cast<std::size_t>(column)].tensor.data());
  }
  std::shared_ptr<const void> owner(int column) const override {
    return std::make_shared<const Tensor>(arrays_[static_cast<std::size_t>(column)].tensor);
  }
  void gather(int column, std::span<const std::int64_t> rows, std::byte* out, ThreadPool*) const override {
    const Column& c = columns_[static_cast<std::size_t>(column)];
    const auto bytes = static_cast<std::size_t>(byte_count(c.dtype, c.sample));
    for (const std::int64_t row : rows) {
      std::memcpy(out, base(column) + static_cast<std::size_t>(row) * bytes, bytes);
      out += bytes;
    }
  }

 private:
  std::vector<NamedTensor> arrays_;
};

std::string kind_of(const DatasetSpec& spec) {
  if (!spec.kind.empty()) return spec.kind;
  if (spec.frame > 0) return "audio";
  if (is_text(spec)) return "text";
  if (is_directory(spec.path)) return "images";
  const MappedFile file(spec.path);  // says what is wrong with the path
  const auto bytes = file.bytes();
  const auto starts = [&](const char* magic, std::size_t n) {
    return bytes.size() >= n && std::memcmp(bytes.data(), magic, n) == 0;
  };
  if (starts("\x93NUMPY", 6)) return "npy";
  if (starts("PK\x03\x04", 4) || starts("PK\x05\x06", 4)) return "npz";
  if (starts("\x89HDF\r\n\x1a\n", 8)) return "hdf5";
  if (starts("RIFF", 4)) return "audio";
  const std::string extension = file_extension(spec.path);
  for (const char* word : {"npy", "npz"})
    if (extension == std::string(".") + word) return word;  // whose reader says what is wrong with it
  if (extension == ".h5" || extension == ".hdf5") return "hdf5";
  throw make_error(ErrorCode::kBadFile, "'{}' is no data set that is known here", spec.path)
      .hint(
          "a .npy, .npz, HDF5, .txt or .jsonl file, or a folder of .jpg and .png, or audio (.wav, .npy) with "
          "frame=; for "
          "another name give kind=");
}

constexpr ReaderHints kHints = {"the file is cut short or damaged: write or copy it again",
                                "docs/datasets.md lists the kinds of data that are read"};

std::unique_ptr<Source> open_kind(const std::string& kind, const DatasetSpec& spec) {
  if (kind == "npy") {
    std::vector<NamedTensor> arrays;
    arrays.push_back({"", read_npy(spec.path)});
    return array_source(std::move(arrays), spec.path);
  }
  if (kind == "npz") return array_source(read_npz(spec.path), spec.path);
  if (kind == "hdf5") return hdf5_source(spec.path);
  if (kind == "images") return image_source(spec);
  if (kind == "audio") return audio_source(spec);
  if (kind == "text") return text_source(spec);
  if (kind == "synthetic")
    throw make_error(ErrorCode::kUsage, "generated data is only for `pare bench`")
        .hint("calibration and evaluation need real samples");
  throw make_error(ErrorCode::kUnsupported, "data sets of kind '{}' are not read by this version", kind);
}

}  // namespace

std::unique_ptr<Source> array_source(std::vector<NamedTensor> arrays, const std::string& what) {
  return std::make_unique<ArraySource>(std::move(arrays), what);
}

std::unique_ptr<Source> open_source(const DatasetSpec& spec) {
  if (spec.path.empty())
    throw make_error(ErrorCode::kUsage, "the data set has no path")
        .hint("give the file or folder of the samples; nothing is ever calibrated on made-up data");
  return with_hints(kHints, [&] { return open_kind(kind_of(spec), spec); });
}

}  // namespace pare
