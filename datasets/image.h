// Pictures: decoding, resizing, cropping. uint8, [height,width,channels], rows without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pare {

struct Image {
  std::int64_t height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> pixels;
};

// JPEG or PNG, told by the first bytes. `channels` 3: RGB (gray is repeated); 1: luma. Transparency is
// dropped, 16 bits are cut to 8; EXIF orientation and colour profiles are not applied. JPEG: libjpeg-turbo
// with the accurate integer DCT and smooth chroma, the defaults of most tools.
// Errors: kBadFile for damage (a JPEG that libjpeg must guess parts of included) and sizes beyond limits.h;
// kUnsupported for other formats and CMYK.
Image decode_image(std::span<const std::byte> file, int channels);
// Height and width only, from the header.
Image read_image_size(std::span<const std::byte> file);

// Bilinear with the triangle widened to the scale when shrinking (antialiased), horizontally, then
// vertically, 22-bit fixed-point weights: what Pillow's resize(BILINEAR) and torchvision's Resize on PIL
// images compute.
Image resize_bilinear(const Image& image, std::int64_t height, std::int64_t width);

// The middle; an odd remainder goes by round-half-even as in torchvision's CenterCrop. The image must be at
// least that large.
Image crop_middle(const Image& image, std::int64_t height, std::int64_t width);

// Height and width that `resize` (one side or two) makes of an image.
void resized_sides(const std::vector<std::int64_t>& resize, std::int64_t& height, std::int64_t& width);

}  // namespace pare
