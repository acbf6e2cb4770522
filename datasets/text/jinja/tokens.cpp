// Text and tags of a template, with Jinja's rules for the white space around tags.
#include <array>

#include "datasets/text/jinja/syntax.h"
#include "engine/base/unicode.h"

namespace pare::jinja {
namespace {

constexpr std::size_t kMostTokens = 1u << 20;

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         (static_cast<unsigned char>(c) & 0x80) != 0;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Line ends become \n, and one at the end of the file goes.
std::string normal_lines(std::string_view source) {
  std::string text;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::size_t white_ahead(std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view after = rest;
    if (!is_white_space(take_character(after))) break;
    rest = after;
  }
  return text.size() - rest.size();
}

std::string without_white_end(const std::string& text) {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t at = end - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    std::string_view last(text.data() + at, end - at);
    if (!is_white_space(take_character(last))) break;
    end = at;
  }
  return text.substr(0, end);
}

class Tokenizer {
 public:
  Tokenizer(std::string_view source, const std::string& where) : text_(normal_lines(source)), where_(where) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const std::size_t tag = next_tag();
      std::string data = text_.substr(at_, tag - at_);
      if (tag == std::string::npos) {
        add(Token::Kind::kText, data);
        break;
      }
      const int data_line = line_;
      const char kind = text_[tag + 1];
      const char sign = tag + 2 < text_.size() ? text_[tag + 2] : ' ';
      count_lines(data);
      if (sign == '-') {
        data = without_white_end(data);
      } else if (sign != '+' && kind != '{') {  // lstrip_blocks
        const std::size_t start = data.rfind('\n') == std::string::npos ? 0 : data.rfind('\n') + 1;
        if ((start > 0 || line_starts_) &&
            white_ahead(std::string_view(data).substr(start)) == data.size() - start)
          data.resize(start);
      }
      if (!data.empty()) tokens_.push_back({Token::Kind::kText, data_line, data});
      at_ = tag + 2 + (sign == '-' || sign == '+' ? 1 : 0);
      line_starts_ = false;
      if (kind == '#')
        comment();
      else if (kind == '%' && !raw())
        inside(Token::Kind::kBlockBegin, Token::Kind::kBlockEnd, '%');
      else if (kind == '{')
        inside(Token::Kind::kOutputBegin, Token::Kind::kOutputEnd, '}');
    }
    add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void add(Token::Kind kind, std::string text) {
    if (tokens_.size() >= kMostTokens) refuse(ErrorCode::kBadFile, where_, line_, "the template is too long");
    tokens_.push_back({kind, line_, std::move(text)});
  }
  void count_lines(std::string_view text) {
    for (const char c : text) line_ += c == '\n' ? 1 : 0;
  }
  std::size_t next_tag() const {
    for (std::size_t i = at_; i + 1 < text_.size(); ++i)
      if (text_[i] == '{' && (text_[i + 1] == '{' || text_[i + 1] == '%' || text_[i + 1] == '#')) return i;
    return std::string::npos;
  }
  void move(std::size_t count) {
    count_lines(std::string_view(text_).substr(at_, count));
    at_ += count;
  }

  // Behind the end of a tag: `sign` stood in front of it. trim_blocks takes one line end behind blocks.
  void behind(char sign, bool block) {
    if (sign == '-') {
      move(white_ahead(std::string_view(text_).substr(at_)));
    } else if (block && sign != '+' && at_ < text_.size() && text_[at_] == '\n') {
      move(1);
    }
    line_starts_ = at_ > 0 && text_[at_ - 1] == '\n';
  }

  void comment() {
    const std::size_t end = text_.find("#}", at_);
    if (end == std::string::npos) refuse(ErrorCode::kBadFile, where_, line_, "a comment does not end");
    const char sign = end > at_ ? text_[end - 1] : ' ';
    move(end + 2 - at_);
    behind(sign, true);
  }

  // {% raw %} ... {% endraw %}
  bool raw() {
    const auto tag = [&](std::size_t at, std::string_view word, char& sign) -> std::size_t {
      at += white_ahead(std::string_view(text_).substr(at));
      if (text_.compare(at, word.size(), word) != 0) return 0;
      at += word.size();
      at += white_ahead(std::string_view(text_).substr(at));
      sign = at < text_.size() ? text_[at] : ' ';
      if (sign == '-' || sign == '+') ++at;
      return text_.compare(at, 2, "%}") == 0 ? at + 2 : 0;
    };
    char sign = ' ';
    const std::size_t begin = tag(at_, "raw", sign);
    if (begin == 0) return false;
    move(begin - at_);
    behind(sign == '-' ? '-' : '+', false);  // trim_blocks does not count here
    for (std::size_t i = text_.find("{%", at_); i != std::string::npos; i = text_.find("{%", i + 2)) {
      const char before = i + 2 < text_.size() ? text_[i + 2] : ' ';
      const std::size_t end = tag(i + 2 + (before == '-' || before == '+' ? 1 : 0), "endraw", sign);
      if (end == 0) continue;
      std::string data = text_.substr(at_, i - at_);
      if (before == '-') data = without_white_end(data);
      if (before != '-' && before != '+') {
        const std::size_t start = data.rfind('\n') == std::string::npos ? 0 : data.rfind('\n') + 1;
        if ((start > 0 || line_starts_) &&
            white_ahead(std::string_view(data).substr(start)) == data.size() - start)
          data.resize(start);
      }
      add(Token::Kind::kText, data);
      move(end - at_);
      behind(sign, true);
      return true;
    }
    refuse(ErrorCode::kBadFile, where_, line_, "'raw' does not end");
  }

  void inside(Token::Kind begin, Token::Kind end, char close) {
    add(begin, "");
    int open = 0;
    while (true) {
      move(white_ahead(std::string_view(text_).substr(at_)));
      if (at_ >= text_.size()) refuse(ErrorCode::kBadFile, where_, line_, "a tag does not end");
      const char c = text_[at_];
      if (open == 0) {
        const bool sign = c == '-' || (c == '+' && close == '%');
        const std::size_t at = at_ + (sign ? 1 : 0);
        if (at + 1 < text_.size() && text_[at] == close && text_[at + 1] == '}') {
          add(end, "");
          move(at + 2 - at_);
          behind(sign ? c : ' ', close == '%');
          return;
        }
      }
      if (is_name_start(c)) {
        std::size_t n = 1;
        while (at_ + n < text_.size() && (is_name_start(text_[at_ + n]) || is_digit(text_[at_ + n]))) ++n;
        add(Token::Kind::kName, text_.substr(at_, n));
        move(n);
      } else if (is_digit(c)) {
        number();
      } else if (c == '\'' || c == '"') {
        string(c);
      } else {
        operation(open);
      }
    }
  }

  void number() {
    std::size_t n = 0;
    const auto digits = [&] {
      while (at_ + n < text_.size() && (is_digit(text_[at_ + n]) || text_[at_ + n] == '_')) ++n;
    };
    const auto digit_at = [&](std::size_t i) { return at_ + i < text_.size() && is_digit(text_[at_ + i]); };
    digits();
    bool real = false;
    const bool behind_dot = at_ > 0 && text_[at_ - 1] == '.';
    if (!behind_dot && at_ + n < text_.size() && text_[at_ + n] == '.' && digit_at(n + 1)) {
      real = true;
      ++n;
      digits();
    }
    if (!behind_dot && at_ + n < text_.size() && (text_[at_ + n] == 'e' || text_[at_ + n] == 'E')) {
      const bool sign =
          at_ + n + 1 < text_.size() && (text_[at_ + n + 1] == '-' || text_[at_ + n + 1] == '+');
      if (digit_at(n + (sign ? 2 : 1))) {
        real = true;
        n += sign ? 2 : 1;
        digits();
      }
    }
    std::string text;
    for (const char c : text_.substr(at_, n))
      if (c != '_') text += c;
    add(real ? Token::Kind::kFloat : Token::Kind::kInt, text);
    move(n);
  }

  // Escapes as Python has them; \N{...} is not known.
  void string(char quote) {
    const int line = line_;
    std::string out;
    std::size_t i = at_ + 1;
    for (; i < text_.size() && text_[i] != quote; ++i) {
      if (text_[i] != '\\' || i + 1 >= text_.size()) {
        out += text_[i];
        continue;
      }
      const char c = text_[++i];
      const auto code = [&](int digits, std::uint32_t base) {
        std::uint32_t value = 0;
        int seen = 0;
        for (; seen < digits && i + 1 < text_.size(); ++seen, ++i) {
          const char d = text_[i + 1];
          const std::uint32_t v = is_digit(d)              ? static_cast<std::uint32_t>(d - '0')
                                  : (d >= 'a' && d <= 'f') ? static_cast<std::uint32_t>(d - 'a' + 10)
                                  : (d >= 'A' && d <= 'F') ? static_cast<std::uint32_t>(d - 'A' + 10)
                                                           : 99;
          if (v >= base) break;
          value = value * base + v;
        }
        if (base == 16 && seen != digits)
          refuse(ErrorCode::kBadFile, where_, line_, "an escape is not complete");
        append_utf8(out, value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)
                             ? kReplacement
                             : static_cast<char32_t>(value));
      };
      constexpr std::array<std::pair<char, char>, 10> kPlain = {{{'n', '\n'},
                                                                 {'t', '\t'},
                                                                 {'r', '\r'},
                                                                 {'a', '\a'},
                                                                 {'b', '\b'},
                                                                 {'f', '\f'},
                                                                 {'v', '\v'},
                                                                 {'\\', '\\'},
                                                                 {'\'', '\''},
                                                                 {'"', '"'}}};
      bool plain = false;
      for (const auto& [from, to] : kPlain)
        if (c == from) {
          out += to;
          plain = true;
        }
      if (plain || c == '\n') continue;
      if (c == 'x')
        code(2, 16);
      else if (c == 'u')
        code(4, 16);
      else if (c == 'U')
        code(8, 16);
      else if (c >= '0' && c <= '7') {
        --i;
        code(3, 8);
      } else if (c == 'N') {
        refuse(ErrorCode::kUnsupported, where_, line_, "characters by their names (\\N) are not known");
      } else {
        out += {'\\', c};
      }
    }
    if (i >= text_.size()) refuse(ErrorCode::kBadFile, where_, line_, "a text in quotes does not end");
    add(Token::Kind::kString, std::move(out));
    tokens_.back().line = line;
    move(i + 1 - at_);
  }

  void operation(int& open) {
    for (const std::string_view two : {"//", "**", "==", "!=", "<=", ">="})
      if (text_.compare(at_, 2, two) == 0) {
        add(Token::Kind::kOperator, std::string(two));
        return move(2);
      }
    const char c = text_[at_];
    if (std::string_view("+-*/%~()[]{}<>=.:|,;").find(c) == std::string_view::npos)
      refuse(ErrorCode::kBadFile, where_, line_, fmt::format("'{}' means nothing here", c));
    if (c == '(' || c == '[' || c == '{') ++open;
    if (c == ')' || c == ']' || c == '}') {
      if (open == 0) refuse(ErrorCode::kBadFile, where_, line_, fmt::format("'{}' closes nothing", c));
      --open;
    }
    add(Token::Kind::kOperator, std::string(1, c));
    move(1);
  }

  std::string text_;
  const std::string& where_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // nothing, or a line end, stands before at_
  std::vector<Token> tokens_;
};

}  // namespace

void refuse(ErrorCode code, const std::string& where, int line, const std::string& what) {
  const char* hint = code == ErrorCode::kUsage ? "look at the roles and keys of the messages"
                     : code == ErrorCode::kUnsupported
                         ? "write prompts in the form that the model was trained on, without its template"
                         : "download the tokenizer again: the template is a part of it";
  throw make_error(code, "{}", what).at(fmt::format("{}: line {}", where, line)).hint(hint);
}

std::vector<Token> tokenize(std::string_view source, const std::string& where) {
  return Tokenizer(source, where).run();
}

}  // namespace pare::jinja
