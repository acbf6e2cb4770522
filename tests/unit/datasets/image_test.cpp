#include "datasets/image.h"

#include <gtest/gtest.h>

#include <map>

#include "datasets/dataset.h"
#include "datasets/npz.h"
#include "datasets/random.h"
#include "tests/unit/datasets/errors.h"
#include "tests/unit/datasets/golden.h"
#include "tests/unit/datasets/temporary.h"

namespace pare {
namespace {

Image decode(const std::string& bytes, int channels = 3) {
  return decode_image(std::as_bytes(std::span(bytes.data(), bytes.size())), channels);
}

std::map<std::string, Tensor> pictures() {
  std::map<std::string, Tensor> all;
  for (NamedTensor& array : read_npz(golden("pictures.npz"))) all[array.name] = array.tensor;
  return all;
}

void expect_pixels(const Image& image, const Tensor& expected) {
  ASSERT_EQ(image.height, expected.dims()[0]);
  ASSERT_EQ(image.width, expected.dims()[1]);
  ASSERT_EQ(static_cast<std::int64_t>(image.pixels.size()), expected.size());
  EXPECT_EQ(std::memcmp(image.pixels.data(), expected.data(), image.pixels.size()), 0);
}

TEST(ImageGolden, DecodesAsPillowDoes) {
  const auto expected = pictures();
  expect_pixels(decode(bytes_of(golden("rgb.png"))), expected.at("rgb_png"));
  expect_pixels(decode(bytes_of(golden("alpha.png"))),
                expected.at("rgb_png"));  // transparency dropped, colours kept
  expect_pixels(decode(bytes_of(golden("palette.png"))), expected.at("palette_png"));
  expect_pixels(decode(bytes_of(golden("rgb.jpg"))), expected.at("rgb_jpg"));
  expect_pixels(decode(bytes_of(golden("gray.png")), 1), expected.at("gray_png"));
  expect_pixels(decode(bytes_of(golden("gray.jpg")), 1), expected.at("gray_jpg"));
  const Image repeated = decode(bytes_of(golden("gray.png")), 3);
  for (std::size_t i = 0; i < repeated.pixels.size(); ++i)
    ASSERT_EQ(repeated.pixels[i], expected.at("gray_png").as<std::uint8_t>()[i / 3]);
}

TEST(ImageGolden, ResizesAsPillowDoes) {
  const auto expected = pictures();
  const Image image = decode(bytes_of(golden("rgb.png")));
  expect_pixels(resize_bilinear(image, 11, 20), expected.at("down"));
  expect_pixels(resize_bilinear(image, 64, 71), expected.at("up"));
  expect_pixels(resize_bilinear(image, 64, 20), expected.at("mixed"));
  expect_pixels(resize_bilinear(image, 37, 53), expected.at("rgb_png"));
}

TEST(ImageSides, ShorterSideAndCrop) {
  const struct {
    std::vector<std::int64_t> resize;
    std::int64_t height, width, to_height, to_width;
  } table[] = {{{20}, 40, 60, 20, 30}, {{20}, 60, 40, 30, 20}, {{20}, 50, 50, 20, 20},
               {{7}, 37, 53, 7, 10},   {{7, 9}, 37, 53, 7, 9}, {{}, 37, 53, 37, 53}};
  for (const auto& row : table) {
    std::int64_t height = row.height, width = row.width;
    resized_sides(row.resize, height, width);
    EXPECT_EQ(height, row.to_height);
    EXPECT_EQ(width, row.to_width);
  }
  Image image{5, 7, 1, std::vector<std::uint8_t>(35)};
  for (std::size_t i = 0; i < 35; ++i) image.pixels[i] = static_cast<std::uint8_t>(i);
  EXPECT_EQ(crop_middle(image, 3, 3).pixels, (std::vector<std::uint8_t>{9, 10, 11, 16, 17, 18, 23, 24, 25}));
  EXPECT_EQ(crop_middle(image, 2, 1).pixels.front(), 2 * 7 + 3);  // 1.5 rows to 2: half to even
  EXPECT_EQ(crop_middle(image, 4, 7).pixels.front(), 0);          // 0.5 rows to 0
  EXPECT_ERROR(crop_middle(image, 6, 3), "usage", "crop=6x3", "5x7", "resize");
}

TEST(ImageHostile, DamageIsAnError) {
  for (const char* name : {"rgb.jpg", "gray.jpg", "rgb.png", "palette.png", "alpha.png"}) {
    const std::string whole = bytes_of(golden(name));
    // The last bytes of a file (end marks) may be missing without harm.
    for (std::size_t n = 0; n + 30 < whole.size(); n += 1 + n / 50) {
      const std::string thrown = error_of([&] { decode(whole.substr(0, n)); });
      EXPECT_TRUE(thrown.starts_with("bad_file: ") || thrown.starts_with("unsupported: "))
          << name << " " << n << " " << thrown;
    }
    SplitMix random(6);
    for (int i = 0; i < 300; ++i) {
      std::string bytes = whole;
      bytes[random.below(bytes.size())] ^= static_cast<char>(1 + random.below(255));
      const std::string thrown = error_of([&] { decode(bytes); });
      EXPECT_TRUE(thrown == "nothing was thrown" || thrown.starts_with("bad_file: ") ||
                  thrown.starts_with("unsupported: "))
          << thrown;
    }
  }
  EXPECT_ERROR(decode(""), "bad_file", "empty");
  EXPECT_ERROR(decode("GIF89a..."), "unsupported", "neither JPEG nor PNG");
  EXPECT_ERROR(decode(bytes_of(golden("cmyk.jpg"))), "unsupported", "CMYK");
  std::string bomb = bytes_of(golden("rgb.png"));  // says 2^31 - 1 pixels wide; its checksum is wrong too
  bomb.replace(16, 4, "\x7f\xff\xff\xff");
  EXPECT_ERROR(decode(bomb), "bad_file");
  std::string wide =
      bytes_of(golden("rgb.jpg"));  // the size in the frame header: FF C0 length precision height width
  const std::size_t frame = wide.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  wide.replace(frame + 5, 4, std::string("\xff\x00\xff\x00", 4));
  EXPECT_ERROR(decode(wide), "bad_file", "65280 x 65280 pixels");
}

class ImageFolder : public testing::Test {
 protected:
  ImageFolder() {
    make_directories(folder.file("set/b"));
    for (const auto& [to, from] :
         {std::pair{"set/2.jpg", "rgb.jpg"}, {"set/10.png", "rgb.png"}, {"set/b/x.PNG", "alpha.png"}})
      folder.write(to, bytes_of(golden(from)));
    folder.write("set/notes.txt", "not a picture");
    folder.write("set/.hidden.png", "not looked at");
  }
  TemporaryFolder folder;
};

InputSpec image_input(std::int64_t channels, std::int64_t height, std::int64_t width) {
  return {"image", DType::kF32, Shape({Dim::named("n"), Dim::of(channels), Dim::of(height), Dim::of(width)})};
}

TEST_F(ImageFolder, ReadsSortedPicturesWithLabelsByName) {
  folder.write("labels.csv", "file,label\nb/x.PNG,5\n10.png,3\n2.jpg,4\nunused.png,9\n");
  Dataset data(parse_data_argument(folder.file("set") +
                                   ":layout=nhwc_to_nchw,scale=1/255,labels=" + folder.file("labels.csv")),
               {image_input(3, 37, 53)});
  ASSERT_EQ(data.sample_count(), 3);
  ThreadPool pool(2);
  const Batch batch = data.read(0, 3, &pool);
  EXPECT_EQ(batch.labels.to_ints(), (std::vector<std::int64_t>{3, 4, 5}));  // 10.png, 2.jpg, b/x.PNG
  const auto expected = pictures();
  const float scale = static_cast<float>(1.0 / 255.0);
  for (std::int64_t p = 0; p < 37 * 53; ++p)
    for (std::int64_t c = 0; c < 3; ++c) {
      EXPECT_EQ(batch.inputs[0].as<float>()[c * 37 * 53 + p],
                static_cast<float>(expected.at("rgb_png").as<std::uint8_t>()[p * 3 + c]) * scale);
      EXPECT_EQ(batch.inputs[0].as<float>()[(3 + c) * 37 * 53 + p],
                static_cast<float>(expected.at("rgb_jpg").as<std::uint8_t>()[p * 3 + c]) * scale);
    }
}

TEST_F(ImageFolder, ResizeCropGrayBgr) {
  Dataset small(
      parse_data_argument(folder.file("set") + ":layout=nchw,scale=1,resize=20,crop=16,channels=bgr"),
      {image_input(3, 16, 16)});
  const Image whole = decode(bytes_of(golden("rgb.png")));
  const Image expected = crop_middle(resize_bilinear(whole, 20, 28), 16, 16);
  EXPECT_EQ(small.read(0, 1).inputs[0].as<float>()[0], static_cast<float>(expected.pixels[2]));  // blue first
  Dataset gray(parse_data_argument(folder.file("set") + ":layout=nchw,scale=1,channels=gray"),
               {image_input(1, 37, 53)});
  EXPECT_EQ(gray.read(0, 1).inputs[0].dims(), (Dims{1, 1, 37, 53}));
}

TEST_F(ImageFolder, Refuses) {
  const std::string set = folder.file("set");
  EXPECT_ERROR(Dataset(parse_data_argument(set), {image_input(3, 37, 53)}), "raw uint8 pixels",
               "add layout=nhwc_to_nchw,scale=1/255");
  EXPECT_ERROR(Dataset(parse_data_argument(set + ":layout=nchw,scale=1"), {image_input(3, 32, 32)}),
               "wrong shape", "[N,37,53,3]", "[n,3,32,32]", "resize=[height,width]");
  folder.write("labels.csv", "10.png,3\n");
  EXPECT_ERROR(Dataset(parse_data_argument(set + ":layout=nchw,scale=1,labels=" + folder.file("labels.csv")),
                       {image_input(3, 37, 53)}),
               "'2.jpg' has no label");
  folder.write("labels.csv", "10.png,3\n10.png,4\n");
  EXPECT_ERROR(Dataset(parse_data_argument(set + ":layout=nchw,scale=1,labels=" + folder.file("labels.csv")),
                       {image_input(3, 37, 53)}),
               "bad_file", "'10.png' has two labels");
  folder.write("set/broken.jpg", bytes_of(golden("rgb.jpg")).substr(0, 700));
  Dataset data(parse_data_argument(set + ":layout=nchw,scale=1"), {image_input(3, 37, 53)});
  EXPECT_ERROR(data.read(0, 4), "bad_file", "broken.jpg", "JPEG is damaged");
  make_directories(folder.file("empty"));
  EXPECT_ERROR(Dataset(parse_data_argument(folder.file("empty")), {image_input(3, 1, 1)}), "usage",
               "no .jpg, .jpeg or .png");
  EXPECT_ERROR(Dataset(parse_data_argument(folder.file("nowhere") + ":kind=images"), {image_input(3, 1, 1)}),
               "bad_file", "no such folder");
}

}  // namespace
}  // namespace pare
