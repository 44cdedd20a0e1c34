#pragma once

/// Marks what libhindcast.so exports; everything else is hidden.
#define HINDCAST_API __attribute__((visibility("default")))
