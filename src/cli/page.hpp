// SPDX-License-Identifier: Apache-2.0
/// What the pages of reports share: one file each, nothing loaded from elsewhere, light and dark.
#pragma once

#include <string>

namespace outboard::cli {

/// As text of an HTML page; line breaks stay.
[[nodiscard]] std::string escaped(const std::string& text);
/// `style`: CSS beside what every page has; its colours are --ink, --soft, --line and --page.
[[nodiscard]] std::string page(const std::string& title, const std::string& style,
                               const std::string& body);

}  // namespace outboard::cli
