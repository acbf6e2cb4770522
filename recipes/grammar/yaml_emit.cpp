// Canonical YAML text, written without the YAML library: the bytes must not change with its version.
#include <cctype>

#include "recipes/grammar/tree.h"

namespace pare {
namespace {

bool is_word(const std::string& text) {
  for (const char* word : {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}) {
    std::string lower;
    for (char c : text) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (lower == word) return true;
  }
  return false;
}

// Plain text that no YAML reader takes for anything else, also inside [a, b].
bool plain(const std::string& text) {
  if (text.empty()) return false;
  for (char c : text) {
    const bool safe = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' ||
                      c == '/' || c == '+' || c == '(' || c == ')' || static_cast<unsigned char>(c) >= 0x80;
    if (!safe) return false;
  }
  return text[0] != '-' || (text.size() > 1 && std::isdigit(static_cast<unsigned char>(text[1])) != 0);
}

bool number_like(const std::string& text) {
  return std::isdigit(static_cast<unsigned char>(text[0])) != 0 || text[0] == '.' || text[0] == '+' ||
         text[0] == '-';
}

std::string quote(const std::string& text) {
  std::string out = "\"";
  constexpr char kHex[] = "0123456789abcdef";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string scalar_text(const TreeNode& node) {
  if (node.kind == TreeNode::Kind::kNull) return "null";
  if (!plain(node.text)) return quote(node.text);
  if (node.quoted && (is_word(node.text) || number_like(node.text))) return quote(node.text);
  return node.text;
}

bool is_scalar(const TreeNode& node) {
  return node.kind == TreeNode::Kind::kScalar || node.kind == TreeNode::Kind::kNull;
}

// The one-line form, or "" when the node needs a block.
std::string one_line(const TreeNode& node) {
  if (is_scalar(node)) return scalar_text(node);
  if (node.kind == TreeNode::Kind::kMap) return node.members.empty() ? "{}" : "";
  std::string out = "[";
  for (const TreeNode& item : node.items) {
    if (!is_scalar(item)) return "";
    if (out.size() > 1) out += ", ";
    out += scalar_text(item);
  }
  return out + "]";
}

void emit(const TreeNode& node, std::size_t indent, bool first_in_line, std::string& out) {
  const std::string space(indent, ' ');
  if (node.kind == TreeNode::Kind::kMap) {
    for (const TreeMember& member : node.members) {
      if (!first_in_line) out += space;
      first_in_line = false;
      out += (plain(member.key) && !is_word(member.key) ? member.key : quote(member.key)) + ":";
      const std::string line = one_line(member.value);
      out += line.empty() ? "\n" : " " + line + "\n";
      if (line.empty()) emit(member.value, indent + 2, false, out);
    }
    return;
  }
  for (const TreeNode& item : node.items) {
    if (!first_in_line) out += space;
    first_in_line = false;
    out += "- ";
    const std::string line = one_line(item);
    if (line.empty())
      emit(item, indent + 2, true, out);
    else
      out += line + "\n";
  }
}

}  // namespace

std::string emit_yaml(const TreeNode& node) {
  const std::string line = one_line(node);
  if (!line.empty()) return line + "\n";
  std::string out;
  emit(node, 0, false, out);
  return out;
}

}  // namespace pare
