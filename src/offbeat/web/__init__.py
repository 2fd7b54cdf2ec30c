"""Pages in one file, and files of other authors for them.

uPlot 1.6.32 draws charts. Its licence, MIT, is ``uplot.LICENSE``; a page that contains uPlot contains the licence, too.
"""
