// Clips of sound as frames (source.h: audio_source).
#include <glob.h>

#include <algorithm>
#include <cstring>

#include "datasets/npy.h"
#include "datasets/source.h"
#include "engine/base/byte_reader.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"

namespace pare {

namespace {

constexpr std::int64_t kMaxFrame = std::int64_t{1} << 28;  // values of a frame, context included
constexpr std::int64_t kDefaultRate = 16000;

bool is_clip(const std::string& name) {
  const std::string extension = file_extension(name);
  return extension == ".npy" || extension == ".wav";
}

std::vector<std::string> clips_at(const std::string& path) {
  std::vector<std::string> files;
  if (is_directory(path)) {
    for (const std::string& name : list_directory(path))
      if (!name.starts_with(".") && is_clip(name)) files.push_back(join_path(path, name));
  } else if (path_exists(path) || path.find_first_of("*?[") == std::string::npos) {
    files.push_back(path);
  } else {
    glob_t found{};
    if (glob(path.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
      for (std::size_t i = 0; i < found.gl_pathc; ++i)
        if (!is_directory(found.gl_pathv[i])) files.emplace_back(found.gl_pathv[i]);
    globfree(&found);
    std::sort(files.begin(), files.end());
  }
  if (files.empty())
    throw make_error(ErrorCode::kUsage, "there is no clip at '{}'", path)
        .hint("a .wav or .npy file, a folder of them, or a pattern such as 'clips/*.wav'");
  return files;
}

// The samples of a RIFF/WAVE file with one channel of 16 bits (Microsoft, "Multimedia Programming Interface
// and Data Specifications 1.0"; WAVE_FORMAT_EXTENSIBLE with the PCM subformat).
Tensor read_wav(const std::string& path, std::int64_t rate) {
  const MappedFile file(path);
  ByteReader reader(file.bytes());
  if (reader.take_text(4, "the RIFF mark") != "RIFF") fail(ErrorCode::kBadFile, "'{}' is no WAV file", path);
  reader.skip(4, "the RIFF size");
  if (reader.take_text(4, "the WAVE mark") != "WAVE") fail(ErrorCode::kBadFile, "'{}' is no WAV file", path);
  bool known = false;
  while (!reader.at_end()) {
    const std::string_view chunk = reader.take_text(4, "the name of a chunk");
    const auto size = reader.take_little_endian<std::uint32_t>("the size of a chunk");
    if (chunk == "fmt ") {
      ByteReader format(reader.take(size, "the format"));
      auto tag = format.take_little_endian<std::uint16_t>("the format's tag");
      const auto channels = format.take_little_endian<std::uint16_t>("the number of channels");
      const auto hertz = format.take_little_endian<std::uint32_t>("the sample rate");
      format.skip(6, "the byte rate");
      const auto bits = format.take_little_endian<std::uint16_t>("the bits of a sample");
      if (tag == 0xFFFE) {
        format.skip(8, "the extension");
        tag = format.take_little_endian<std::uint16_t>("the subformat");
      }
      if (tag != 1 || bits != 16 || channels != 1)
        throw make_error(ErrorCode::kUnsupported, "'{}' has {} channels of {} bits, format {}", path,
                         channels, bits, tag)
            .hint("one channel of 16-bit PCM is read: convert it, for example with sox or ffmpeg");
      if (hertz != rate)
        throw make_error(ErrorCode::kUsage, "'{}' has {} samples a second, {} are wanted", path, hertz, rate)
            .hint("resample the clip, or give the model's own with rate=");
      known = true;
    } else if (chunk == "data") {
      if (!known) fail(ErrorCode::kBadFile, "'{}' has samples before their format", path);
      // A writer that was cut off leaves 0xFFFFFFFF, or more than there is.
      const std::size_t bytes = std::min<std::size_t>(size, reader.left()) / 2 * 2;
      const auto samples = reader.take(bytes, "the samples");
      return Tensor::copy_of(DType::kI16, {static_cast<std::int64_t>(bytes / 2)}, samples.data(), bytes);
    } else {
      reader.skip(std::min<std::size_t>(reader.left(), std::size_t{size} + (size & 1)), "a chunk");
    }
  }
  fail(ErrorCode::kBadFile, "'{}' has no samples", path);
}

class AudioSource : public Source {
 public:
  explicit AudioSource(const DatasetSpec& spec) : frame_(spec.frame), context_(spec.context) {
    if (frame_ <= 0)
      throw make_error(ErrorCode::kUsage, "audio is cut into frames, and nothing says how long they are")
          .hint("add frame=N, the values that are new in each sample (and context=N for those before)");
    if (frame_ > kMaxFrame || context_ > kMaxFrame)
      throw make_error(ErrorCode::kUsage, "a frame of {} values with a context of {} is too long", frame_,
                       context_)
          .hint("lower frame or context");
    files_ = clips_at(spec.path);
    for (const std::string& path : files_) {
      Tensor clip = file_extension(path) == ".wav" ? read_wav(path, spec.rate > 0 ? spec.rate : kDefaultRate)
                                                   : read_npy(path);
      if (clip.dims().size() != 1 || (clip.dtype() != DType::kI16 && clip.dtype() != DType::kF32))
        throw make_error(ErrorCode::kUsage, "the clip '{}' is {} {}", path, name(clip.dtype()),
                         to_string(clip.dims()))
            .hint("a clip is int16 or float32 of one dimension: one channel");
      if (!clips_.empty() && clip.dtype() != clips_.front().dtype())
        throw make_error(ErrorCode::kUsage, "'{}' is {}, but '{}' is {}", path, name(clip.dtype()),
                         files_.front(), name(clips_.front().dtype()))
            .hint("convert the clips to one type");
      starts_.push_back(count_);
      count_ += clip.size() / frame_;
      clips_.push_back(std::move(clip));
    }
    if (count_ == 0)
      throw make_error(ErrorCode::kUsage, "no clip at '{}' has a whole frame of {} values", spec.path, frame_)
          .hint("lower frame, or give longer clips");
    columns_.push_back({"", clips_.front().dtype(), {context_ + frame_}});
  }

  std::string row_name(std::int64_t row) const override { return file_name(files_[clip_of(row)]); }
  std::int64_t stream_of(std::int64_t row) const override { return static_cast<std::int64_t>(clip_of(row)); }

  void gather(int, std::span<const std::int64_t> rows, std::byte* out, ThreadPool*) const override {
    const std::int64_t width = bits(columns_[0].dtype) / 8, length = context_ + frame_;
    for (const std::int64_t row : rows) {
      const std::size_t clip = clip_of(row);
      const std::int64_t begin = (row - starts_[clip]) * frame_ - context_;  // may lie before the clip
      const std::int64_t missing = std::min(length, std::max<std::int64_t>(0, -begin));
      std::memset(out, 0, static_cast<std::size_t>(missing * width));
      std::memcpy(out + missing * width, clips_[clip].as<std::byte>() + (begin + missing) * width,
                  static_cast<std::size_t>((length - missing) * width));
      out += length * width;
    }
  }

 private:
  std::size_t clip_of(std::int64_t row) const {
    // The last clip that starts at or before the row: clips without a frame start where the next one does.
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), row);
    return static_cast<std::size_t>(after - starts_.begin()) - 1;
  }

  std::int64_t frame_, context_;
  std::vector<std::string> files_;
  std::vector<Tensor> clips_;
  std::vector<std::int64_t> starts_;  // by clip: its first row
};

}  // namespace

std::unique_ptr<Source> audio_source(const DatasetSpec& spec) { return std::make_unique<AudioSource>(spec); }

}  // namespace pare
