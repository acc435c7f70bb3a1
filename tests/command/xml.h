// Whether a document is well formed, as far as drawings of ours go: one root, elements that close in order, attributes
// in double quotes and once each, no bare '<', '>' or '&' in text.
#pragma once
#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace shardcomm::testing {

class XmlCheck {
 public:
  explicit XmlCheck(std::string_view text) : text_(text) {}

  // What is wrong, and before what text; "" when nothing is.
  std::string fault() {
    while (at_ < text_.size()) {
      const std::string what = text_[at_] == '<' ? tag() : content();
      if (!what.empty()) return what + " at '" + std::string(text_.substr(at_, 60)) + "'";
    }
    if (!open_.empty()) return "unclosed element " + open_.back();
    return roots_ == 1 ? "" : std::to_string(roots_) + " root elements";
  }

 private:
  bool take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  std::string take_name() {
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '-'))
      ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  void skip_spaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }

  static bool is_entity(std::string_view text) {
    for (const char* entity : {"&lt;", "&gt;", "&amp;", "&quot;", "&apos;"}) {
      if (text.starts_with(entity)) return true;
    }
    return false;
  }

  std::string content() {
    if (open_.empty() && std::isspace(static_cast<unsigned char>(text_[at_])) == 0) return "text outside the root";
    if (text_[at_] == '&' && !is_entity(text_.substr(at_))) return "a bare &";
    if (text_[at_] == '>') return "a bare >";
    ++at_;
    return "";
  }

  std::string tag() {
    if (take("</")) {
      const std::string name = take_name();
      if (open_.empty() || open_.back() != name || !take(">")) return "an end that nothing began: " + name;
      open_.pop_back();
      return "";
    }
    take("<");
    const std::string name = take_name();
    if (name.empty()) return "no name of an element";
    if (open_.empty()) ++roots_;
    std::set<std::string> seen;
    for (;;) {
      skip_spaces();
      if (take("/>")) return "";
      if (take(">")) {
        open_.push_back(name);
        return "";
      }
      const std::string attribute = take_name();
      if (attribute.empty() || !take("=\"")) return "no attribute in " + name;
      if (!seen.insert(attribute).second) return "attribute twice: " + attribute;
      for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
        if (text_[at_] == '<' || (text_[at_] == '&' && !is_entity(text_.substr(at_)))) return "a bare character";
      }
      if (!take("\"")) return "an open quote";
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  int roots_ = 0;
  std::vector<std::string> open_;
};

inline std::string xml_fault(std::string_view text) { return XmlCheck(text).fault(); }

}  // namespace shardcomm::testing
