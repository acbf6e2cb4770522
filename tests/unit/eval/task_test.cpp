// Metrics of tasks: text by CTC, boxes of a detector, decisions about frames.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "datasets/npy.h"
#include "eval/scorer.h"
#include "eval/task/boxes.h"
#include "eval/task/ctc.h"
#include "eval/task/embedding.h"
#include "eval/task/text.h"
#include "tests/unit/datasets/errors.h"
#include "tests/unit/datasets/temporary.h"

namespace pare {
namespace {

const float kNan = std::numeric_limits<float>::quiet_NaN();

// One row a step with 1 at the class and 0 elsewhere.
Tensor steps(const std::vector<int>& classes, std::int64_t count) {
  std::vector<float> values(classes.size() * static_cast<std::size_t>(count), 0.0f);
  for (std::size_t t = 0; t < classes.size(); ++t)
    values[t * static_cast<std::size_t>(count) + static_cast<std::size_t>(classes[t])] = 1;
  return Tensor::from(DType::kF32, {1, static_cast<std::int64_t>(classes.size()), count}, values);
}

TEST(EditDistance, CountsInsertionsDeletionsSubstitutions) {
  const struct {
    const char *a, *b;
    std::int64_t distance;
  } kCases[] = {{"", "", 0},
                {"abc", "", 3},
                {"", "abc", 3},
                {"kitten", "sitting", 3},
                {"ab", "ba", 2},
                {"flaw", "lawn", 2},
                {"\xC3\xA9t\xC3\xA9", "ete", 2},
                {"\xFF", "\xFE", 1}};
  for (const auto& c : kCases) {
    EXPECT_EQ(edit_distance(code_points(c.a), code_points(c.b)), c.distance) << c.a << " " << c.b;
    EXPECT_EQ(edit_distance(code_points(c.b), code_points(c.a)), c.distance) << c.a << " " << c.b;
  }
}

TEST(CodePoints, Utf8) {
  EXPECT_EQ(code_points("a\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80"),
            (std::vector<std::uint32_t>{0x61, 0xE9, 0x4E2D, 0x1F600}));
  EXPECT_EQ(code_points("\xE4\xB8"), (std::vector<std::uint32_t>{0xDCE4, 0xDCB8})) << "cut off";
  EXPECT_EQ(code_points("\x80z"), (std::vector<std::uint32_t>{0xDC80, 'z'}));
}

TEST(Ctc, DecodesGreedily) {
  TemporaryFolder folder;
  DatasetSpec spec;
  spec.alphabet = folder.write("abc.txt", "a\nb\n\xC3\xA9\n");
  const CtcText text(spec);
  const auto decode = [&](const CtcText& ctc, const std::vector<int>& classes, std::int64_t count) {
    const Tensor t = steps(classes, count);
    return ctc.decode(t.as<float>(), t.dims()[1], count);
  };
  EXPECT_EQ(decode(text, {1, 1, 0, 1, 2, 2, 3}, 4), "aab\xC3\xA9")
      << "repeats fall together, a blank parts them";
  EXPECT_EQ(decode(text, {0, 0}, 4), "");
  EXPECT_EQ(decode(text, {4, 1, 4}, 5), " a ") << "one class more is a space";
  DatasetSpec last = spec;
  last.blank = 3;
  EXPECT_EQ(decode(CtcText(last), {0, 3, 0, 2}, 4), "aa\xC3\xA9") << "the blank stands last";
  last.blank = 1;
  EXPECT_EQ(decode(CtcText(last), {0, 1, 2}, 3), "a\xC3\xA9") << "the blank has a line of its own";
  const float odd[] = {kNan, kNan, kNan, kNan, kNan, 2, 2, 1};
  EXPECT_EQ(text.decode(odd, 2, 4), "a") << "NaN is never the largest, of equal ones the first is";
}

TEST(Ctc, CountsErrorsOverTheWholeSet) {
  TemporaryFolder folder;
  DatasetSpec spec;
  spec.alphabet = folder.write("abc.txt", "a\nb\nc");
  CtcText plain(spec);
  spec.ignore_spaces = true;
  CtcText without(spec);
  EXPECT_TRUE(std::isnan(plain.rate()));
  for (CtcText* text : {&plain, &without}) {
    text->add(steps({1, 4, 2}, 5).view(), {"a bc"});  // "a b": one error of four, one of three
    text->add(steps({1, 2, 3}, 5).view(), {"abc"});
    text->add(steps({0, 0, 0}, 5).view(), {""});
  }
  EXPECT_EQ(plain.errors(), 1);
  EXPECT_EQ(plain.characters(), 7);
  EXPECT_EQ(without.characters(), 6);
  EXPECT_EQ(without.rate(), 1.0 / 6);
  EXPECT_ERROR(plain.add(steps({0}, 6).view(), {"a"}), "usage", "6 classes", "3 characters");
  EXPECT_ERROR(plain.add(steps({0}, 2).view(), {"a"}), "2 classes");
  EXPECT_ERROR(plain.add(Tensor::scalar(1).view(), {"a"}), "wants an output [samples,steps,classes]");
  spec.alphabet = folder.write("empty.txt", "");
  EXPECT_ERROR(CtcText{spec}, "usage", "is empty");
}

BoxSpec plain_boxes() {
  BoxSpec spec;
  spec.scores = {"s"};
  spec.boxes = {"b"};
  spec.form = "xyxy";
  return spec;
}

// Scores [1,n] and boxes [1,n,4].
std::vector<Tensor> found(const std::vector<Box>& boxes) {
  std::vector<float> scores, numbers;
  for (const Box& b : boxes) {
    scores.push_back(b.score);
    numbers.insert(numbers.end(), {b.x0, b.y0, b.x1, b.y1});
  }
  const auto n = static_cast<std::int64_t>(boxes.size());
  return {Tensor::from(DType::kF32, {1, n}, scores), Tensor::from(DType::kF32, {1, n, 4}, numbers)};
}

TEST(Boxes, Overlap) {
  EXPECT_EQ(intersection_over_union({0, 0, 2, 2}, {1, 1, 3, 3}), 1.0 / 7);
  EXPECT_EQ(intersection_over_union({0, 0, 2, 2}, {0, 0, 2, 2}), 1.0);
  EXPECT_EQ(intersection_over_union({0, 0, 2, 2}, {2, 0, 4, 2}), 0.0);
  EXPECT_EQ(intersection_over_union({0, 0, 0, 0}, {0, 0, 0, 0}), 0.0) << "empty";
  EXPECT_EQ(intersection_over_union({3, 3, 1, 1}, {0, 0, 4, 4}), 0.0) << "inside out";
  EXPECT_EQ(intersection_over_union({kNan, 0, 2, 2}, {0, 0, 2, 2}), 0.0);
}

TEST(Boxes, AgreementCountsWhatIsMissingAndWhatIsTooMuch) {
  const Box a{0, 0, 10, 10, 0.9f}, b{20, 20, 30, 30, 0.8f}, near_a{1, 0, 11, 10, 0.7f},
      far{50, 50, 60, 60, 0.6f}, weak{70, 70, 80, 80, 0.4f};
  const struct {
    std::vector<Box> reference, candidate;
    double share;
  } kCases[] = {
      {{a, b}, {a, b}, 1.0},
      {{a, b}, {near_a, b}, 1.0},         // IoU 9/11
      {{a, b}, {a}, 2.0 / 3},             // one is missing
      {{a}, {a, far}, 2.0 / 3},           // one is too much
      {{a, b}, {far}, 0.0},               //
      {{weak}, {weak}, 1.0},              // nobody finds anything
      {{a}, {a, weak}, 1.0},              // what is below the threshold does not count
      {{a, near_a}, {a}, 1.0},            // near_a is dropped beside a
      {{a}, {{0, 0, 10, 10, kNan}}, 0.0}  // NaN is no score
  };
  for (const auto& c : kCases) {
    BoxAgreement agreement(plain_boxes(), {"s", "b"});
    agreement.add(found(c.reference), found(c.candidate));
    EXPECT_EQ(agreement.share(), c.share) << &c - kCases;
  }
  // Of two candidates the nearer one is the pair.
  BoxSpec loose = plain_boxes();
  loose.nms = 1;
  BoxAgreement agreement(loose, {"s", "b"});
  agreement.add(found({a, near_a}), found({near_a, a}));
  EXPECT_EQ(agreement.pairs(), 2);
  EXPECT_EQ(agreement.boxes(), 4);
}

TEST(Boxes, GridsAndForms) {
  BoxSpec spec;
  spec.scores = {"s0", "s1"};
  spec.boxes = {"b0", "b1"};
  spec.strides = {4, 8};
  spec.size = {8, 16};  // 2 x 4 cells and 1 x 2 cells
  spec.sigmoid = true;
  spec.nms = 1;
  const BoxAgreement grid(spec, {"b0", "s0", "b1", "s1"});
  std::vector<float> s0(16, -9), b0(16 * 5, 0), s1(2, -9),
      b1(2 * 5, 0);       // two a cell; a fifth number nobody reads
  s0[13] = 2, s1[1] = 0;  // row 1, column 2; row 0, column 1
  const float box[] = {1, -1, 2, 4, 99};
  std::copy(box, box + 5, b0.begin() + 13 * 5), std::copy(box, box + 5, b1.begin() + 5);
  const std::vector<Tensor> outputs = {
      Tensor::from(DType::kF32, {1, 16, 5}, b0), Tensor::from(DType::kF32, {1, 16, 1}, s0),
      Tensor::from(DType::kF32, {1, 2, 5}, b1), Tensor::from(DType::kF32, {1, 2, 1}, s1)};
  const std::vector<Box> boxes = grid.decode(outputs, 0);
  ASSERT_EQ(boxes.size(), 2u);
  EXPECT_EQ(boxes[0].score, 1 / (1 + std::exp(-2.0f)));
  EXPECT_EQ(boxes[0].x0, 10.0f);
  EXPECT_EQ(boxes[0].x1, 12.0f);  // centre (2.5 * 4, 1.5 * 4) + (1, -1)
  EXPECT_EQ(boxes[0].y0, 3.0f);
  EXPECT_EQ(boxes[0].y1, 7.0f);
  EXPECT_EQ(boxes[1].score, 0.5f) << "the threshold itself counts";
  EXPECT_EQ(boxes[1].x0, 12.0f);
  EXPECT_EQ(boxes[1].y0, 1.0f);  // centre (12, 4) + (1, -1)

  BoxSpec form = plain_boxes();
  const auto first = [&](const char* word) {
    form.form = word;
    return BoxAgreement(form, {"s", "b"}).decode(found({{1, 2, 5, 8, 1}}), 0).at(0);
  };
  EXPECT_EQ(first("yxyx").x0, 2);
  EXPECT_EQ(first("yxyx").y1, 5);
  EXPECT_EQ(first("cxcywh").x0, -1.5f);
  EXPECT_EQ(first("cxcywh").y1, 6);

  EXPECT_ERROR(BoxAgreement(plain_boxes(), {"s", "bb"}), "usage", "no output 'b'");
  EXPECT_ERROR(grid.decode({outputs[1], outputs[1], outputs[2], outputs[3]}, 0), "scores are [1,16,1]");
  spec.size = {16, 24};
  EXPECT_ERROR(BoxAgreement(spec, {"b0", "s0", "b1", "s1"}).decode(outputs, 0), "16 boxes", "4 x 6 cells");
}

TEST(Frames, AgreeWhenBothAreAboveOrBothAreNot) {
  TemporaryFolder folder;
  write_npy(folder.file("x.npy"), Tensor::from<float>(DType::kF32, {4, 1}, {1, 2, 3, 4}).view());
  const auto share = [&](const char* keys) {
    Dataset data(parse_data_argument(folder.file("x.npy") + keys), {});
    Scorer scorer({"frame_agreement", "top1_agreement"}, data, {"p"}, true);
    const Tensor r = Tensor::from<float>(DType::kF32, {4}, {0.5f, 0.6f, 0.2f, 0.9f});
    const Tensor c = Tensor::from<float>(DType::kF32, {4}, {0.6f, 0.7f, 0.1f, kNan});
    std::vector<Tensor> reference = {r}, candidate = {c};
    scorer.add(candidate, data.read(0, 4), &reference);
    return scorer.values().at("frame_agreement");
  };
  EXPECT_EQ(share(""), 0.5) << "0.5 is not above 0.5; NaN agrees with nothing";
  EXPECT_EQ(share(":threshold=0.3"), 0.75);
}

TEST(Scorer, LargestOutputsAgree) {
  TemporaryFolder folder;
  write_npy(folder.file("x.npy"), Tensor::from<float>(DType::kF32, {3, 1}, {1, 2, 3}).view());
  Dataset data(parse_data_argument(folder.file("x.npy")), {});
  Scorer scorer({"top1_agreement"}, data, {"y"}, true);
  std::vector<Tensor> reference = {Tensor::from<float>(DType::kF32, {3, 2}, {1, 0, 0, 1, 1, 0})};
  scorer.add({Tensor::from<float>(DType::kF32, {3, 2}, {2, 1, 2, 1, 1, 1})}, data.read(0, 3), &reference);
  EXPECT_EQ(scorer.values().at("top1_agreement"), 2.0 / 3) << "of equal outputs the first is the largest";
}

// Against the formulas in double, over rows of every awkward length.
TEST(TokenMetrics, AreThoseOfTheFormulas) {
  for (const std::int64_t n : {1, 2, 7, 16, 511, 513, 2000}) {
    constexpr std::int64_t kRows = 6;
    Tensor mine = Tensor::allocate(DType::kF32, {2, 3, n}), theirs = Tensor::allocate(DType::kF32, {2, 3, n});
    std::uint32_t state = 12345;
    for (std::int64_t i = 0; i < kRows * n; ++i) {
      state = state * 1664525 + 1013904223;
      mine.mut<float>()[i] = static_cast<float>(state >> 8) * 0x1p-21F - 4;  // -4 .. 4
      theirs.mut<float>()[i] = mine.as<float>()[i] + static_cast<float>(i % 5) * 0.01F;
    }
    Tensor targets = Tensor::from<std::int64_t>(DType::kI64, {2, 3}, {0, -1, n - 1, n / 2, 0, -1});
    double nll = 0, kl = 0;
    int scored = 0, alike = 0;
    for (std::int64_t r = 0; r < kRows; ++r) {
      const float *q = mine.as<float>() + r * n, *p = theirs.as<float>() + r * n;
      const std::int64_t target = targets.as<std::int64_t>()[r];
      if (target < 0) continue;
      double sum_q = 0, sum_p = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        sum_q += std::exp(static_cast<double>(q[i]));
        sum_p += std::exp(static_cast<double>(p[i]));
      }
      nll += std::log(sum_q) - static_cast<double>(q[target]);
      for (std::int64_t i = 0; i < n; ++i)
        kl += std::exp(static_cast<double>(p[i])) / sum_p *
              (static_cast<double>(p[i]) - std::log(sum_p) - static_cast<double>(q[i]) + std::log(sum_q));
      ++scored;
      alike += std::max_element(q, q + n) - q == std::max_element(p, p + n) - p ? 1 : 0;
    }
    ThreadPool pool(2);
    for (const bool whole : {true, false}) {
      TokenMetrics metrics;
      if (whole) {
        metrics.add(mine, targets, &theirs, &pool);
      } else {
        for (std::int64_t b = 0; b < 2; ++b) {
          const auto part = [&](const Tensor& t, std::int64_t width) {
            return Tensor::copy_of(t.dtype(), width == 1 ? Dims{1, 3} : Dims{1, 3, n},
                                   t.as<std::byte>() + b * t.bytes() / 2,
                                   static_cast<std::size_t>(t.bytes() / 2));
          };
          const Tensor reference = part(theirs, n + 1);
          metrics.add(part(mine, n + 1), part(targets, 1), &reference, nullptr);
        }
      }
      EXPECT_EQ(metrics.tokens(), scored);
      // A sum of exponentials is within 40 * 2^-24 of its value, and so is its logarithm.
      EXPECT_NEAR(metrics.mean_nll(), nll / scored, 40 * 0x1p-24);
      EXPECT_NEAR(metrics.kl(), kl / scored, 40 * 0x1p-24);
      EXPECT_EQ(metrics.agreement(), static_cast<double>(alike) / scored);
    }
  }
}

TEST(TokenMetrics, NanCountsAndWrongShapesAreRefused) {
  const Tensor targets = Tensor::from<std::int64_t>(DType::kI64, {1, 1}, {0});
  const Tensor nan = Tensor::from<float>(DType::kF32, {1, 1, 2}, {std::nanf(""), 1});
  TokenMetrics metrics;
  metrics.add(nan, targets, &nan, nullptr);
  EXPECT_TRUE(std::isnan(metrics.perplexity()));
  EXPECT_TRUE(std::isnan(metrics.kl()));
  EXPECT_EQ(metrics.agreement(), 0);
  EXPECT_TRUE(std::isnan(TokenMetrics().perplexity()));
  EXPECT_ERROR(metrics.add(Tensor::from<float>(DType::kF32, {1, 2}, {0, 1}), targets, nullptr, nullptr),
               "logits");
  EXPECT_ERROR(metrics.add(nan, Tensor::from<std::int64_t>(DType::kI64, {1, 1}, {2}), nullptr, nullptr),
               "token 2");
}

TEST(CheckMetrics, SaysWhatTheDataLacks) {
  TemporaryFolder folder;
  write_npy(folder.file("x.npy"), Tensor::from<float>(DType::kF32, {2, 1}, {1, 2}).view());
  folder.write("t.txt", "a\nb\n");
  write_npy(folder.file("n.npy"), Tensor::ints({0, 1}).view());
  const auto check = [&](const char* metric, const std::string& keys) {
    check_metrics({metric}, Dataset(parse_data_argument(folder.file("x.npy") + keys), {}), true);
  };
  EXPECT_ERROR(check("top1", ""), "usage", "needs labels");
  EXPECT_ERROR(check("top1", ":labels=" + folder.file("t.txt")), "needs class numbers as labels");
  EXPECT_ERROR(check("cer", ":labels=" + folder.file("n.npy")), "needs texts as labels");
  EXPECT_ERROR(check("cer", ":labels=" + folder.file("t.txt")), "needs alphabet");
  EXPECT_ERROR(check("box_agreement", ""), "needs description of boxes");
  EXPECT_ERROR(check("perplexity", ""), "needs text");
  check("cer", ":labels=" + folder.file("t.txt") + ",alphabet=" + folder.file("t.txt"));
}

// --- embeddings

TEST(EmbeddingCosineTest, MeansOverTheMarkedTokens) {
  // Two samples of three tokens of two values; the third token of the second is padding.
  const Tensor r = Tensor::from<float>(DType::kF32, {2, 3, 2}, {1, 0, 0, 1, 2, 2, 1, 0, 1, 0, 9, 9});
  const Tensor c = Tensor::from<float>(DType::kF32, {2, 3, 2}, {3, 0, 0, 0, 0, 0, 0, 5, 0, 5, -7, 100});
  const Tensor mask = Tensor::from<std::int64_t>(DType::kI64, {2, 3}, {1, 1, 1, 1, 1, 0});
  EmbeddingCosine cosine;
  EXPECT_EQ(cosine.mean(), 0);
  cosine.add(r, c, &mask);
  // (3, 3) against (3, 0): 1 / sqrt(2); (2, 0) against (0, 10): 0. Two roundings of doubles below 1.
  EXPECT_NEAR(cosine.mean(), std::sqrt(0.5) / 2, 4e-16);
  EmbeddingCosine all;
  all.add(r, c, nullptr);  // (11, 9) against (-7, 110)
  EXPECT_NEAR(all.mean(), (std::sqrt(0.5) + (11 * -7 + 9 * 110) / std::sqrt(202.0 * 12149.0)) / 2, 4e-16);
}

TEST(EmbeddingCosineTest, EmbeddingsThemselvesAndUglyOnes) {
  const auto one = [](std::vector<float> r, std::vector<float> c) {
    EmbeddingCosine cosine;
    const Dims dims = {1, static_cast<std::int64_t>(r.size())};
    cosine.add(Tensor::from(DType::kF32, dims, r), Tensor::from(DType::kF32, dims, c), nullptr);
    return cosine.mean();
  };
  EXPECT_EQ(one({3, 4}, {3, 4}), 1);
  EXPECT_EQ(one({3, 4}, {-6, -8}), -1);
  EXPECT_EQ(one({0, 0}, {0, 0}), 1);
  EXPECT_EQ(one({0, 0}, {1, 0}), 0);
  EXPECT_EQ(one({1, NAN}, {1, 1}), 0);
  EXPECT_EQ(one({1, INFINITY}, {1, 1}), 0);
  EXPECT_EQ(one({1e30F, 0}, {1e30F, 0}), 1);  // squares within doubles
  EmbeddingCosine cosine;
  EXPECT_ERROR(cosine.add(Tensor::from<float>(DType::kF32, {1, 2}, {1, 1}),
                          Tensor::from<float>(DType::kF32, {2, 1}, {1, 1}), nullptr),
               "embeddings are");
  EXPECT_ERROR(cosine.add(Tensor::scalar(1.0F), Tensor::scalar(1.0F), nullptr), "embeddings are");
}

}  // namespace
}  // namespace pare
