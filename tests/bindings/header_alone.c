#include <hindcast/hindcast_c.h>

/* Alone, and first. */
int hindcast_header_is_c(void);
int hindcast_header_is_c(void) { return HINDCAST_OK; }
