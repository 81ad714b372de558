// Text that would do harm if it were anything but text: HTML, a change of direction, a bell.
export const HOSTILE = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>\u202egnp.exe\u0007';
// How it must look.
export const HARMLESS = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>\\u202egnp.exe';
