#include "datasets/spec.h"

#include <gtest/gtest.h>

#include "tests/unit/datasets/errors.h"

namespace pare {
namespace {

TEST(ParseDataArgument, TakesEveryKey) {
  const DatasetSpec spec = parse_data_argument(
      "a/b.npy:layout=nhwc_to_nchw,scale=1/255,mean=[0.485,0.456,0.406],std=[0.229, 0.224,0.225],samples=512,"
      "batch=7,shuffle=3,resize=256,crop=[224,192],channels=bgr,labels=l.npy,input=image,kind=npy,max_"
      "nonfinite=5");
  EXPECT_EQ(spec.path, "a/b.npy");
  EXPECT_EQ(spec.layout, DataLayout::kNhwcToNchw);
  EXPECT_EQ(*spec.scale, 1.0 / 255.0);
  EXPECT_EQ(spec.mean, (std::vector<double>{0.485, 0.456, 0.406}));
  EXPECT_EQ(spec.std, (std::vector<double>{0.229, 0.224, 0.225}));
  EXPECT_EQ(spec.samples, 512);
  EXPECT_EQ(spec.batch, 7);
  EXPECT_EQ(*spec.shuffle, 3u);
  EXPECT_EQ(spec.resize, (std::vector<std::int64_t>{256}));
  EXPECT_EQ(spec.crop, (std::vector<std::int64_t>{224, 192}));
  EXPECT_EQ(spec.channels, "bgr");
  EXPECT_EQ(spec.labels, "l.npy");
  EXPECT_EQ(spec.input, "image");
  EXPECT_EQ(spec.kind, "npy");
  EXPECT_EQ(spec.max_nonfinite, 5);
}

TEST(ParseDataArgument, ColonsInPathsAndNames) {
  EXPECT_EQ(parse_data_argument("plain.npy").path, "plain.npy");
  EXPECT_EQ(parse_data_argument("c:/x.npy").path, "c:/x.npy");
  EXPECT_EQ(parse_data_argument("a:b:scale=2").path, "a:b");
  const DatasetSpec spec = parse_data_argument("x.npz:inputs=[input:0:ids,mask:m]");
  ASSERT_EQ(spec.inputs.size(), 2u);
  EXPECT_EQ(spec.inputs[0], (std::pair<std::string, std::string>{"input:0", "ids"}));
  EXPECT_EQ(spec.inputs[1], (std::pair<std::string, std::string>{"mask", "m"}));
}

TEST(ParseDataArgument, Numbers) {
  EXPECT_EQ(parse_number("k", "-0.5"), -0.5);
  EXPECT_EQ(parse_number("k", "1e-3"), 1e-3);
  EXPECT_EQ(parse_number("k", " 1 / 4 "), 0.25);
}

TEST(ParseDataArgument, RefusesWithAHint) {
  EXPECT_ERROR(parse_data_argument("x:layuot=nchw"), "usage: ", "'layuot'", "did you mean 'layout'?");
  EXPECT_ERROR(parse_data_argument("x:layout=nchv"), "'nchv' is none of", "did you mean 'nchw'?");
  EXPECT_ERROR(parse_data_argument("x:scale=a"), "'scale'", "'a' is not a number");
  EXPECT_ERROR(parse_data_argument("x:scale=1/0"), "divides by zero");
  EXPECT_ERROR(parse_data_argument("x:scale=0"), "'scale' is 0");
  EXPECT_ERROR(parse_data_argument("x:scale=nan"), "is not a number");
  EXPECT_ERROR(parse_data_argument("x:std=[1,0]"), "'std' has a 0");
  EXPECT_ERROR(parse_data_argument("x:samples=0"), "at least 1");
  EXPECT_ERROR(parse_data_argument("x:samples=12x"), "'12x' is not a whole number");
  EXPECT_ERROR(parse_data_argument("x:scale=2,scale=3"), "given twice");
  EXPECT_ERROR(parse_data_argument("x:mean=1,2"), "'2' in the data argument is not key=value", "brackets");
  EXPECT_ERROR(parse_data_argument("x:resize=[1,2,3]"), "3 numbers");
  EXPECT_ERROR(parse_data_argument(":scale=1"), "no data file");
}

}  // namespace
}  // namespace pare
