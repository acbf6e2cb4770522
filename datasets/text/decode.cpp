#include "datasets/text/steps.h"
#include "engine/base/unicode.h"

namespace pare {
namespace {

using Step = TokenizerSpec::Step;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  if (from.empty()) return text;
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

std::string join(const std::vector<std::string>& pieces) {
  std::string all;
  for (const std::string& piece : pieces) all += piece;
  return all;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// Runs of <0x..> become their bytes; bytes that make no UTF-8 become one U+FFFD each.
std::vector<std::string> join_bytes(const std::vector<std::string>& pieces) {
  std::vector<std::string> out;
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    const std::string valid = valid_utf8(run);
    if (valid == run) {
      out.push_back(run);
    } else {
      for (std::size_t i = 0; i < run.size(); ++i) out.emplace_back("\uFFFD");
    }
    run.clear();
  };
  for (const std::string& piece : pieces) {
    const bool byte = piece.size() == 6 && piece.rfind("<0x", 0) == 0 && piece[5] == '>' &&
                      hex_digit(piece[3]) >= 0 && hex_digit(piece[4]) >= 0;
    if (byte) {
      run += static_cast<char>(hex_digit(piece[3]) * 16 + hex_digit(piece[4]));
      continue;
    }
    flush();
    out.push_back(piece);
  }
  flush();
  return out;
}

std::string strip(const Step& step, std::string text) {
  for (std::int64_t i = 0; i < step.start && !step.text.empty() && text.rfind(step.text, 0) == 0; ++i)
    text.erase(0, step.text.size());
  for (std::int64_t i = 0; i < step.stop && !step.text.empty() && text.size() >= step.text.size() &&
                           text.compare(text.size() - step.text.size(), std::string::npos, step.text) == 0;
       ++i)
    text.resize(text.size() - step.text.size());
  return text;
}

void join_word_pieces(const Step& step, std::vector<std::string>& pieces) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    std::string& piece = pieces[i];
    if (i > 0 && piece.rfind(step.text, 0) == 0)
      piece.erase(0, step.text.size());
    else if (i > 0)
      piece = " " + piece;
    if (!step.cleanup) continue;
    constexpr const char* kClean[][2] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& pair : kClean) piece = replaced(piece, pair[0], pair[1]);
  }
}

}  // namespace

std::string decode_pieces(const std::vector<Step>& steps, std::vector<std::string> pieces) {
  if (steps.empty()) {
    std::string all;
    for (std::size_t i = 0; i < pieces.size(); ++i) all += (i == 0 ? "" : " ") + pieces[i];
    return all;
  }
  for (const Step& step : steps) {
    if (step.type == "ByteLevel") {
      std::string bytes, part;
      for (const std::string& piece : pieces) bytes += characters_to_bytes(piece, part) ? part : piece;
      pieces = {valid_utf8(bytes)};
    } else if (step.type == "ByteFallback") {
      pieces = join_bytes(pieces);
    } else if (step.type == "Fuse") {
      pieces = {join(pieces)};
    } else if (step.type == "WordPiece") {
      join_word_pieces(step, pieces);
    }
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      std::string& piece = pieces[i];
      if (step.type == "Replace") piece = replaced(piece, step.pattern, step.text);
      if (step.type == "Strip") piece = strip(step, piece);
      if (step.type == "BPEDecoder") piece = replaced(piece, step.text, i + 1 == pieces.size() ? "" : " ");
      if (step.type == "Metaspace") {
        const bool drop = i == 0 && step.behavior != "never" && piece.rfind(step.text, 0) == 0;
        piece = replaced(drop ? piece.substr(step.text.size()) : piece, step.text, " ");
      }
    }
  }
  return join(pieces);
}

}  // namespace pare
