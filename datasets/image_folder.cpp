#include <algorithm>
#include <cstring>

#include "datasets/image.h"
#include "datasets/source.h"
#include "engine/base/error.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "engine/base/reader_hints.h"

namespace pare {

namespace {

constexpr ReaderHints kHints = {"take the image out of the folder, or convert or copy it again",
                                "convert the image to JPEG or PNG"};
constexpr int kMaxFolderDepth = 16;
constexpr std::size_t kMaxFiles = 50'000'000;

void collect(const std::string& root, const std::string& below, int depth, std::vector<std::string>& files) {
  if (depth > kMaxFolderDepth)
    fail(ErrorCode::kBadFile, "'{}': folders are nested deeper than {}", root, kMaxFolderDepth);
  for (const std::string& entry : list_directory(join_path(root, below))) {
    if (entry.starts_with(".")) continue;
    const std::string path = below.empty() ? entry : below + "/" + entry;
    const std::string extension = file_extension(entry);
    if (is_directory(join_path(root, path))) {
      collect(root, path, depth + 1, files);
    } else if (extension == ".jpg" || extension == ".jpeg" || extension == ".png") {
      if (files.size() >= kMaxFiles)
        fail(ErrorCode::kBadFile, "'{}' holds more than {} images", root, kMaxFiles);
      files.push_back(path);
    }
  }
}

class ImageSource : public Source {
 public:
  explicit ImageSource(const DatasetSpec& spec) : spec_(spec) {
    if (!is_directory(spec.path)) {
      if (!path_exists(spec.path))
        throw make_error(ErrorCode::kBadFile, "cannot open '{}': there is no such folder", spec.path)
            .hint("check the path");
      throw make_error(ErrorCode::kBadFile, "'{}' is no folder", spec.path)
          .hint("kind=images reads a folder of images");
    }
    collect(spec.path, "", 0, files_);
    std::sort(files_.begin(), files_.end());
    count_ = static_cast<std::int64_t>(files_.size());
    if (files_.empty())
      throw make_error(ErrorCode::kUsage, "there is no .jpg, .jpeg or .png below '{}'", spec.path)
          .hint("give the folder that holds the images");
    channels_ = spec.channels == "gray" ? 1 : 3;
    const MappedFile first(full_path(0));
    const Image size =
        with_context("reading " + full_path(0), kHints, [&] { return read_image_size(first.bytes()); });
    height_ = size.height;
    width_ = size.width;
    final_sides(height_, width_);
    columns_.push_back({"", DType::kU8, {height_, width_, channels_}});
  }

  std::string row_name(std::int64_t row) const override { return files_[static_cast<std::size_t>(row)]; }
  bool images() const override { return true; }
  std::int64_t stream_of(std::int64_t row) const override { return row; }

  void gather(int, std::span<const std::int64_t> rows, std::byte* out, ThreadPool* pool) const override {
    const std::int64_t bytes = height_ * width_ * channels_;
    const auto body = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const Image image = load(rows[static_cast<std::size_t>(i)]);
        std::memcpy(out + i * bytes, image.pixels.data(), static_cast<std::size_t>(bytes));
      }
    };
    const auto count = static_cast<std::int64_t>(rows.size());
    if (pool)
      pool->parallel_for(count, 1, body);
    else
      body(0, count);
  }

 private:
  std::string full_path(std::int64_t row) const {
    return join_path(spec_.path, files_[static_cast<std::size_t>(row)]);
  }

  void final_sides(std::int64_t& height, std::int64_t& width) const {
    resized_sides(spec_.resize, height, width);
    if (spec_.crop.empty()) return;
    height = spec_.crop.front();
    width = spec_.crop.back();
  }

  Image load(std::int64_t row) const {
    const std::string path = full_path(row);
    return with_context("reading " + path, kHints, [&] {
      const MappedFile file(path);
      Image image = decode_image(file.bytes(), static_cast<int>(channels_));
      std::int64_t height = image.height, width = image.width;
      resized_sides(spec_.resize, height, width);
      if (height <= 0 || width <= 0 || height * width > static_cast<std::int64_t>(limits::kMaxImagePixels))
        fail(ErrorCode::kBadFile, "resize makes {}x{} pixels of {}x{}", height, width, image.height,
             image.width);
      image = resize_bilinear(image, height, width);
      if (!spec_.crop.empty()) image = crop_middle(image, spec_.crop.front(), spec_.crop.back());
      if (image.height != height_ || image.width != width_)
        throw make_error(ErrorCode::kUsage, "the image is {}x{} (height x width), but '{}' is {}x{}",
                         image.height, image.width, files_[0], height_, width_)
            .hint("add resize=[height,width], or resize=SIDE with crop=SIDE");
      return image;
    });
  }

  DatasetSpec spec_;
  std::vector<std::string> files_;
  std::int64_t height_ = 0, width_ = 0, channels_ = 3;
};

}  // namespace

std::unique_ptr<Source> image_source(const DatasetSpec& spec) { return std::make_unique<ImageSource>(spec); }

}  // namespace pare
