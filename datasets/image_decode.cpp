#include <csetjmp>
#include <cstdio>
#include <cstring>

// jpeglib.h takes FILE and size_t for granted.
#include <jpeglib.h>
#include <png.h>

#include "datasets/image.h"
#include "engine/base/error.h"
#include "engine/base/limits.h"

namespace pare {

namespace {

void check_sides(std::uint64_t height, std::uint64_t width) {
  if (height == 0 || width == 0) fail(ErrorCode::kBadFile, "the image is {} x {} pixels", width, height);
  if (height > limits::kMaxImageSide || width > limits::kMaxImageSide ||
      height * width > limits::kMaxImagePixels)
    fail(ErrorCode::kBadFile, "the image says to be {} x {} pixels; {} a side and {} in all are allowed",
         width, height, limits::kMaxImageSide, limits::kMaxImagePixels);
}

// libjpeg reports errors by a call that must not return: it jumps back into decode. Nothing with a destructor
// lives between the setjmp and the calls that may jump.
struct JpegErrors {
  jpeg_error_mgr manager;
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

void jpeg_fails(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  info->err->format_message(info, errors->message);
  std::longjmp(errors->back, 1);
}

// Level -1 is a warning: data is missing or damaged and libjpeg goes on with grey. We do not.
void jpeg_says(j_common_ptr info, int level) {
  if (level < 0) jpeg_fails(info);
}

enum class JpegState { kDone, kFailed, kTooLarge, kCmyk };

// Only plain data in here, because of longjmp. `pixels` null: sizes only.
JpegState run_jpeg(JpegErrors& errors, std::span<const std::byte> file, int channels, Image& image,
                   std::vector<std::uint8_t>* pixels) {
  jpeg_decompress_struct info;
  std::memset(&info, 0, sizeof info);
  info.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = jpeg_fails;
  errors.manager.emit_message = jpeg_says;
  if (setjmp(errors.back)) {
    jpeg_destroy_decompress(&info);
    return JpegState::kFailed;
  }
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&info, TRUE);
  image.height = info.image_height;
  image.width = info.image_width;
  image.channels = channels;
  JpegState state = JpegState::kDone;
  if (image.height > static_cast<std::int64_t>(limits::kMaxImageSide) ||
      image.width > static_cast<std::int64_t>(limits::kMaxImageSide) ||
      image.height * image.width > static_cast<std::int64_t>(limits::kMaxImagePixels)) {
    state = JpegState::kTooLarge;
  } else if (info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK) {
    state = JpegState::kCmyk;
  } else if (pixels) {
    info.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    info.dct_method = JDCT_ISLOW;
    jpeg_start_decompress(&info);
    pixels->resize(static_cast<std::size_t>(image.height * image.width * channels));
    while (info.output_scanline < info.output_height) {
      JSAMPROW row = pixels->data() + static_cast<std::size_t>(info.output_scanline) *
                                          static_cast<std::size_t>(image.width * channels);
      jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
  }
  jpeg_destroy_decompress(&info);
  return state;
}

Image decode_jpeg(std::span<const std::byte> file, int channels, bool size_only) {
  JpegErrors errors;
  Image image;
  switch (run_jpeg(errors, file, channels, image, size_only ? nullptr : &image.pixels)) {
    case JpegState::kFailed:
      fail(ErrorCode::kBadFile, "the JPEG is damaged: {}", errors.message);
    case JpegState::kCmyk:
      throw make_error(ErrorCode::kUnsupported, "the JPEG has four colours (CMYK)").hint("convert it to RGB");
    case JpegState::kTooLarge:
    case JpegState::kDone:
      check_sides(static_cast<std::uint64_t>(image.height), static_cast<std::uint64_t>(image.width));
  }
  return image;
}

// libpng's simplified interface: no jumps, errors as text. 16 bits are scaled, transparency composed on black
// unless it is dropped beforehand: asking for the alpha channel and skipping it keeps the stored colours.
Image decode_png(std::span<const std::byte> file, int channels, bool size_only) {
  png_image info;
  std::memset(&info, 0, sizeof info);
  info.version = PNG_IMAGE_VERSION;
  if (!png_image_begin_read_from_memory(&info, file.data(), file.size()))
    fail(ErrorCode::kBadFile, "the PNG is damaged: {}", info.message);
  Image image;
  image.height = info.height;
  image.width = info.width;
  image.channels = channels;
  try {
    check_sides(info.height, info.width);
    if (size_only) {
      png_image_free(&info);
      return image;
    }
    const bool alpha = info.format & PNG_FORMAT_FLAG_ALPHA;
    info.format = channels == 1 ? (alpha ? PNG_FORMAT_GA : PNG_FORMAT_GRAY)
                                : (alpha ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB);
    const std::size_t stored = static_cast<std::size_t>(channels) + (alpha ? 1 : 0);
    std::vector<std::uint8_t> raw(static_cast<std::size_t>(image.height * image.width) * stored);
    if (!png_image_finish_read(&info, nullptr, raw.data(), 0, nullptr) || (info.warning_or_error & 1))
      fail(ErrorCode::kBadFile, "the PNG is damaged: {}", info.message);
    if (!alpha) {
      image.pixels = std::move(raw);
    } else {
      image.pixels.reserve(raw.size());
      for (std::size_t i = 0; i < raw.size(); i += stored)
        image.pixels.insert(image.pixels.end(), raw.begin() + static_cast<std::ptrdiff_t>(i),
                            raw.begin() + static_cast<std::ptrdiff_t>(i) + channels);
    }
  } catch (...) {
    png_image_free(&info);
    throw;
  }
  return image;
}

Image decode(std::span<const std::byte> file, int channels, bool size_only) {
  if (file.size() > limits::kMaxImageFileBytes)
    fail(ErrorCode::kBadFile, "the image has {} bytes, more than the {} allowed", file.size(),
         limits::kMaxImageFileBytes);
  const auto starts = [&](const char* magic, std::size_t n) {
    return file.size() >= n && std::memcmp(file.data(), magic, n) == 0;
  };
  if (starts("\xFF\xD8\xFF", 3)) return decode_jpeg(file, channels, size_only);
  if (starts("\x89PNG\r\n\x1a\n", 8)) return decode_png(file, channels, size_only);
  if (file.empty()) fail(ErrorCode::kBadFile, "the file is empty");
  throw make_error(ErrorCode::kUnsupported, "this is neither JPEG nor PNG").hint("convert it to one of them");
}

}  // namespace

Image decode_image(std::span<const std::byte> file, int channels) { return decode(file, channels, false); }
Image read_image_size(std::span<const std::byte> file) { return decode(file, 3, true); }

}  // namespace pare
